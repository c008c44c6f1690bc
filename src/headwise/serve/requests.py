"""What is asked of the batchers, and the events with which they answer."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from headwise.decode.config import GREEDY, DecodeConfig
from headwise.decode.generator import Source
from headwise.decode.hypothesis import Hypothesis
from headwise.errors import UserError

log = logging.getLogger(__name__)
Reason: TypeAlias = Literal["stop", "length"]  # an EOS token or a stop string; the maximum length
PROMPT = -1  # the `output` of the events of a prompt's own tokens


@dataclass(frozen=True)
class GenerationRequest:
    """One source to decode: greedily, by sampling or with beams, as its config says."""

    source: Source  # token ids of a prompt (language model) or of a source (encoder-decoder), or an image tensor
    config: DecodeConfig = GREEDY
    top_logprobs: int = 0  # most probable tokens reported with each token
    echo_logprobs: bool = False  # log P of the prompt's tokens, too


@dataclass(frozen=True, slots=True)
class TokenEvent:
    """A token of an output; of a prompt where `output` is PROMPT. Tokens that beam search finds are known at its end,
    and have no events; EOS has none either."""

    key: Hashable
    output: int  # which of `nbest`
    token: int
    log_prob: float
    top: tuple[tuple[int, float], ...] = ()  # the most probable tokens and their log P, best first


@dataclass(frozen=True, slots=True)
class FinishedEvent:
    """The last event of a request that was decoded."""

    key: Hashable
    hypotheses: list[Hypothesis]  # best first
    reasons: tuple[Reason, ...]  # why each of them ended
    prompt_tokens: int
    completion_tokens: int  # of all hypotheses, without EOS
    outputs: tuple[int, ...] = ()  # the `output` of the token events of each hypothesis; empty for beam search


@dataclass(frozen=True, slots=True)
class FailedEvent:
    """The last event of a request that could not be decoded."""

    key: Hashable
    message: str


Event: TypeAlias = TokenEvent | FinishedEvent | FailedEvent


@dataclass(frozen=True, slots=True)
class PredictedEvent:
    """The last event of an input of `EncoderBatcher`."""

    key: Hashable
    prediction: object


FAILED = "decoding failed: "  # before the reason of a failure that is not the client's


def describe_failure(error: Exception) -> str:
    """One line for whoever asked; what is not their fault is logged with its traceback."""
    lines = str(error).splitlines() or [type(error).__name__]
    if isinstance(error, UserError):
        return lines[0]
    log.error("%s", "".join(traceback.format_exception(error)))
    return f"{FAILED}{lines[0]}"
