"""Texts longer than those of training: a language model that reads the last tokens alone.

Most kinds of positions are read badly where they were never trained (docs/language-models.md): a small GPT with rotary
ones writes gibberish after its context. So, whatever their kind, a state is given up when it has read as many tokens as
in training, and the later half of them is read anew, at positions from 0. Every token thus has at least half of the
context before it, at the price of reading twice.

Letters: B prompts, R rows, P tokens read.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from headwise.decode.config import DecodeConfig
from headwise.decode.generator import Generator, Source, length
from headwise.errors import UserError

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WindowState:
    """The model's own state, and the tokens that are in it."""

    inner: Any
    past: Tensor  # (R, P)

    def select(self, rows: Tensor) -> WindowState:
        return WindowState(self.inner.select(rows), self.past[rows])

    def join(self, other: WindowState) -> WindowState:
        raise UserError("join: a window begins anew for all its rows at once; decode with a context that fits the text")


class SlidingWindow(nn.Module):
    """A language model as a generator that goes on for ever, with `context` tokens in sight at most."""

    continues = True
    ragged = False  # prompts of one length are begun anew at the same time, whoever else is in the batch
    max_length = 0

    def __init__(self, model: Generator, context: int):
        super().__init__()
        self.model, self.context = model, context
        self.start_id, self.end_id, self.vocab = model.start_id, model.end_id, model.vocab
        self.training = getattr(model, "training", False)

    def start(self, source: Tensor, beams: int = 1) -> WindowState:
        past = last(source, self.context - 1)
        return WindowState(self.model.start(past, beams=beams), past.repeat_interleave(beams, 0))  # (B, P) -> (R, P)

    def step(self, tokens: Tensor, state: WindowState) -> tuple[Tensor, WindowState]:
        inner, past = state.inner, state.past
        if past.shape[1] >= self.context:
            past = last(past, self.context // 2)
            inner = self.model.start(past)
        logits, inner = self.model.step(tokens, inner)
        return logits, WindowState(inner, torch.cat((past, tokens[:, None]), dim=1))


def last(ids: Tensor, count: int) -> Tensor:
    """The last columns.

    >>> last(torch.arange(4)[None], 2).tolist(), last(torch.arange(4)[None], 0).tolist()
    ([[2, 3]], [[]])
    """
    return ids[:, max(0, ids.shape[1] - count) :]


def with_window(model: Generator, sources: Sequence[Source], config: DecodeConfig) -> Generator:
    """The model as `config.context` lets it read: the same, unless a text may outgrow it."""
    if not (model.continues and config.context):
        return model
    context = min(config.context, model.max_length or config.context)
    if max((length(source) + config.limit(length(source)) for source in sources), default=0) < context:
        return model
    longest = max(map(length, sources))
    if longest >= context:
        log.warning(
            "a prompt has %d tokens, and the model %d in sight: of a longer text it reads the end", longest, context
        )
    return SlidingWindow(model, context)
