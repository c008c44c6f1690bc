"""The compute to a given quality: training FLOPs after which each arm reaches the score of the weakest one.

The level is the worst of all runs' best validation scores, so that every run reaches it; between two validations the
score is taken as linear in the tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headwise.compare.values import Comparison


@dataclass(frozen=True)
class Reach:
    """A validation score, and the training FLOPs after which each arm reaches it, by seed."""

    level: float
    weakest: str  # the arm whose best validation score it is
    flops: Mapping[str, Mapping[int, float]]


def find_reach(comparison: Comparison) -> Reach | None:
    """None if the table does not ask for it (`analysis.reach`), or no run has a validation curve."""
    if not comparison.analysis.reach or comparison.lower is None:
        return None
    sign = -1.0 if comparison.lower else 1.0
    curves = {
        (name, seed): [(float(tokens), sign * score) for tokens, score in outcome.validation]
        for name, arm in comparison.arms.items()
        for seed, outcome in arm.outcomes.items()
        if outcome.validation
    }
    if not curves:
        return None
    best = {key: max(score for _, score in curve) for key, curve in curves.items()}
    weakest = min(best, key=lambda key: best[key])
    flops: dict[str, dict[int, float]] = {}
    for (name, seed), curve in curves.items():
        cost = comparison.arms[name].outcomes[seed].count_training_flops(find_crossing(curve, best[weakest]))
        if cost is not None:
            flops.setdefault(name, {})[seed] = cost
    return Reach(sign * best[weakest], weakest[0], flops)


def find_crossing(curve: Sequence[tuple[float, float]], level: float) -> float:
    """The abscissa at which a curve first reaches a level that it reaches; linear between its points.

    >>> find_crossing([(100, 2.0), (200, 4.0), (300, 3.0)], 3.5)
    175.0
    """
    index = next(index for index, (_, score) in enumerate(curve) if score >= level)
    if index == 0:
        return curve[0][0]
    (left, low), (right, high) = curve[index - 1], curve[index]
    return left + (right - left) * (level - low) / (high - low)
