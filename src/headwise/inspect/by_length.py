"""Scores by source length (after Bahdanau et al. 2015, figure 2): the bottleneck of a fixed-length vector."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headwise.errors import UserError, nearest
from headwise.evaluate.bleu import bleu
from headwise.evaluate.error_rates import character_error_rate, phoneme_error_rate, sequence_error_rate, word_error_rate
from headwise.evaluate.score import Score

if TYPE_CHECKING:
    from headwise.tasks.base import Evaluation

Scorer = Callable[[Sequence[str], Sequence[Sequence[str]]], Score]
SCORERS: dict[str, Scorer] = {
    "BLEU": bleu,
    "SER": sequence_error_rate,
    "WER": word_error_rate,
    "PER": phoneme_error_rate,
    "CER": character_error_rate,
}


@dataclass(frozen=True)
class Bin:
    """The score of the sources of `low` to `high` units, inclusive, and their mean length."""

    low: int
    high: int
    count: int
    mean: float
    score: Score

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "score": self.score.to_json()}


def score_by_length(evaluation: Evaluation, bins: int | Sequence[int] = 6, score: Scorer | None = None) -> list[Bin]:
    """Score an evaluation in bins of source length; empty bins are left out.

    `bins` is the number of bins of about equal size, or the lengths at which bins begin. Length is counted in words, or
    in characters if no source has more than one word. The default `score` is the evaluation's first one; for a model
    that normalises its text, pass the score of its task.
    """
    if not evaluation.sources:
        raise UserError("there is nothing to score: the test set is empty")
    scorer = score or _get_scorer(evaluation)
    lengths = count_source_units(evaluation.sources)
    starts = np.array(_choose_bin_starts(lengths, bins))
    member = np.searchsorted(starts, lengths, side="right") - 1  # -1: shorter than the first bin
    ends = np.append(starts[1:] - 1, max(lengths.max(), starts[-1]))
    scored = []
    for number, (low, high) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        rows = np.flatnonzero(member == number)
        if len(rows):
            value = scorer([evaluation.outputs[i] for i in rows], [evaluation.references[i] for i in rows])
            scored.append(Bin(low, high, len(rows), float(lengths[rows].mean()), value))
    return scored


def count_source_units(sources: Sequence[str]) -> np.ndarray:
    """Count the words of each source, or its characters if every source is a single word.

    >>> count_source_units(["a b", "cde"]).tolist(), count_source_units(["ab", "cde"]).tolist()
    ([2, 1], [2, 3])
    """
    words = [source.split() for source in sources]
    if max(map(len, words), default=0) > 1:
        return np.array(list(map(len, words)))
    return np.array([len(source.strip()) for source in sources])


def plot_by_length(runs: Mapping[str, Sequence[Bin]], out: Path | str) -> Path:
    """Plot the scores of several runs with confidence intervals, as .png or .svg."""

    from headwise.inspect.files import check_ending, open_figure

    out = Path(out)
    check_ending(out, ".svg", ".png")
    names = sorted({bin_.score.name for bins in runs.values() for bin_ in bins})
    if len(names) != 1:
        raise UserError(f"{out}: one picture shows one score, not {' and '.join(names) or 'none'}")
    with open_figure(out) as figure:
        axes = figure.subplots()
        for run, bins in runs.items():
            x, scores = [bin_.mean for bin_ in bins], [bin_.score for bin_ in bins]
            (line,) = axes.plot(x, [score.value for score in scores], marker="o", markersize=4, label=run)
            low, high = [score.low for score in scores], [score.high for score in scores]
            axes.fill_between(x, low, high, color=line.get_color(), alpha=0.15, linewidth=0)
        unit = next(bin_.score.unit for bins in runs.values() for bin_ in bins)
        axes.set(xlabel="length of the source", ylabel=f"{names[0]} ({unit})" if unit else names[0])
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(fontsize="small", frameon=False)
    return out


def _get_scorer(evaluation: Evaluation) -> Scorer:
    name = evaluation.scores[0].name if evaluation.scores else ""
    if name not in SCORERS:
        raise UserError(f"score '{name}' cannot be computed by length; {nearest(name, SCORERS)}")
    return SCORERS[name]


def _choose_bin_starts(lengths: np.ndarray, bins: int | Sequence[int]) -> list[int]:
    """Choose the lengths at which bins begin, without duplicates."""
    if isinstance(bins, int):
        if bins < 1:
            raise UserError(f"bins: make at least one, not {bins}")
        edges = np.quantile(lengths, np.arange(bins) / bins, method="lower")
        return sorted({int(edge) for edge in edges})
    if not bins or list(bins) != sorted(set(bins)):
        raise UserError(f"bins: lengths must grow, as in 1, 10, 20, not {', '.join(map(str, bins)) or 'be empty'}")
    return list(bins)
