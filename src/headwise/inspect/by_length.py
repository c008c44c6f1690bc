"""Scores over the length of the source (after Bahdanau et al. 2015, figure 2): where a fixed vector gives out."""

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
    """The score of all sources of `low` to `high` units, both included, and their mean length."""

    low: int
    high: int
    count: int
    mean: float
    score: Score

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "score": self.score.to_json()}


def by_length(evaluation: Evaluation, bins: int | Sequence[int] = 6, score: Scorer | None = None) -> list[Bin]:
    """The score of an evaluation for short and long sources apart; lengths without any source are left out.

    `bins` says how many bins of about equally many sources to make, or at which lengths bins begin. A source is as
    long as it has words, or characters where no source has more than one word. Without a `score` the evaluation's
    first one is computed again; for a model that normalises its text, pass its task's own.
    """
    if not evaluation.sources:
        raise UserError("there is nothing to score: the test set is empty")
    scorer = score or _scorer(evaluation)
    lengths = source_lengths(evaluation.sources)
    starts = np.array(_starts(lengths, bins))
    member = np.searchsorted(starts, lengths, side="right") - 1  # -1: shorter than the first bin
    ends = np.append(starts[1:] - 1, max(lengths.max(), starts[-1]))
    found = []
    for number, (low, high) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        rows = np.flatnonzero(member == number)
        if len(rows):
            own = scorer([evaluation.outputs[i] for i in rows], [evaluation.references[i] for i in rows])
            found.append(Bin(low, high, len(rows), float(lengths[rows].mean()), own))
    return found


def source_lengths(sources: Sequence[str]) -> np.ndarray:
    """Words of each source, or characters where every source is a single word.

    >>> source_lengths(["a b", "cde"]).tolist(), source_lengths(["ab", "cde"]).tolist()
    ([2, 1], [2, 3])
    """
    words = [source.split() for source in sources]
    if max(map(len, words), default=0) > 1:
        return np.array([len(each) for each in words])
    return np.array([len(source.strip()) for source in sources])


def plot_by_length(runs: Mapping[str, Sequence[Bin]], out: Path | str) -> Path:
    """Draw the curves of several runs with their intervals; the ending of `out` decides the format: .png or .svg."""

    from headwise.inspect.files import check_ending, figure

    out = Path(out)
    check_ending(out, ".svg", ".png")
    names = sorted({each.score.name for bins in runs.values() for each in bins})
    if len(names) != 1:
        raise UserError(f"{out}: one picture shows one score, not {' and '.join(names) or 'none'}")
    with figure(out) as drawn:
        axes = drawn.subplots()
        for run, bins in runs.items():
            x, y = [each.mean for each in bins], [each.score.value for each in bins]
            (line,) = axes.plot(x, y, marker="o", markersize=4, label=run)
            low, high = [each.score.low for each in bins], [each.score.high for each in bins]
            axes.fill_between(x, low, high, color=line.get_color(), alpha=0.15, linewidth=0)
        unit = next(each.score.unit for bins in runs.values() for each in bins)
        axes.set(xlabel="length of the source", ylabel=f"{names[0]} ({unit})" if unit else names[0])
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(fontsize="small", frameon=False)
    return out


def _scorer(evaluation: Evaluation) -> Scorer:
    name = evaluation.scores[0].name if evaluation.scores else ""
    if name not in SCORERS:
        raise UserError(f"no score over length is called '{name}'; {nearest(name, SCORERS)}")
    return SCORERS[name]


def _starts(lengths: np.ndarray, bins: int | Sequence[int]) -> list[int]:
    """The lengths at which bins begin; equal ones count once."""
    if isinstance(bins, int):
        if bins < 1:
            raise UserError(f"bins: make at least one, not {bins}")
        edges = np.quantile(lengths, np.arange(bins) / bins, method="lower")
        return sorted({int(edge) for edge in edges})
    if not bins or list(bins) != sorted(set(bins)):
        raise UserError(f"bins: lengths must grow, as in 1, 10, 20, not {', '.join(map(str, bins)) or 'be empty'}")
    return list(bins)
