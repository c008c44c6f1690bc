"""Hypotheses of a search, and their scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

from headwise.decode.length_penalty import LengthPenalty, gnmt_length_penalty


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """Token ids without BOS and EOS; `score` ranks hypotheses, `log_prob` is the log P of the sequence with EOS."""

    ids: tuple[int, ...]
    score: float
    log_prob: float


def score_hypothesis(
    ids: Sequence[int],
    log_prob: float,
    alpha: float,
    length: int | None = None,
    length_penalty: LengthPenalty = gnmt_length_penalty,
) -> Hypothesis:
    """The hypothesis of `ids` (without EOS), given the log P of the sequence with EOS. `length` is the number of
    generated tokens; unless given, that of `ids` and EOS."""
    generated = len(ids) + 1 if length is None else length
    return Hypothesis(tuple(ids), log_prob / length_penalty(generated, alpha), log_prob)


def rank_hypotheses(hypotheses: Sequence[Hypothesis], count: int) -> list[Hypothesis]:
    """The `count` best, best first."""
    return sorted(hypotheses, key=lambda hypothesis: -hypothesis.score)[:count]


NOT_FINITE = (
    "No output of the model has a finite probability: its weights are damaged or its training diverged; use an earlier "
    "checkpoint."
)


def are_finite(hypotheses: Sequence[Hypothesis]) -> bool:
    """Whether there is an output, and the best one has a finite probability."""
    return bool(hypotheses) and isfinite(hypotheses[0].score)
