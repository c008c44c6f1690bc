"""The cost of a given quality: training FLOPs, or tokens (frames, images), after which arms reach a validation score.

The level is the worst of all runs' best validation scores, so that every run reaches it, or a share of the best one,
which some may miss. Between two validations the score is taken as linear in the tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import fmean

from headwise.compare.analysis import find_baseline
from headwise.compare.estimate import estimate_over_seeds
from headwise.compare.values import Comparison, Outcome

Curve = Sequence[tuple[float, float]]  # (tokens, score), higher is better


@dataclass(frozen=True)
class Reach:
    """A validation score, and the cost after which each arm reaches it, by seed."""

    level: float
    weakest: str  # the arm whose best validation score it is; empty: it is a share of the best one
    unit: str  # of the costs: FLOPs, tokens, frames
    costs: Mapping[str, Mapping[int, float]]
    missed: Mapping[str, int]  # runs that never reach it, by arm

    @property
    def name(self) -> str:
        return f"{self.unit} to {self.level:.3g}"

    def format(self, arm: str) -> str:
        """The mean over seeds of those that reach the level, and how many do if some do not."""
        costs, missed = list(self.costs.get(arm, {}).values()), self.missed.get(arm, 0)
        shares = f" ({len(costs)} of {len(costs) + missed})" if missed else ""
        if not costs:
            return f"never{shares}" if missed else ""
        mean = fmean(costs)
        return (f"{mean:.2g}" if self.unit == "FLOPs" else f"{mean:,.0f}") + shares


def find_reach(comparison: Comparison) -> Reach | None:
    """None if the table does not ask for it (`analysis.reach`), or no run has a validation curve."""
    settings = comparison.analysis
    if not settings.reach or comparison.lower is None:
        return None
    sign = -1.0 if comparison.lower else 1.0
    curves: dict[tuple[str, int], Curve] = {
        (name, seed): [(float(tokens), sign * score) for tokens, score in outcome.validation]
        for name, arm in comparison.arms.items()
        for seed, outcome in arm.outcomes.items()
        if outcome.validation
    }
    if not curves:
        return None
    best = {key: max(score for _, score in curve) for key, curve in curves.items()}
    weakest = min(best, key=lambda key: best[key])
    level = take_share(max(best.values()), settings.reach_share) if settings.reach_share else best[weakest]
    costs: dict[str, dict[int, float]] = {}
    missed: dict[str, int] = {}
    for (name, seed), curve in curves.items():
        if best[name, seed] < level:
            missed[name] = missed.get(name, 0) + 1
            continue
        tokens = find_crossing(curve, level)
        cost = count_cost(comparison.arms[name].outcomes[seed], tokens, settings.reach)
        if cost is not None:
            costs.setdefault(name, {})[seed] = cost
    unit = "FLOPs" if settings.reach == "flops" else f"{comparison.unit}s"
    return Reach(sign * level, "" if settings.reach_share else weakest[0], unit, costs, missed)


def take_share(best: float, share: float) -> float:
    """The level at a share of the best score; for negative scores, which count errors, as many more.

    >>> take_share(20.0, 0.8), take_share(-20.0, 0.8)
    (16.0, -25.0)
    """
    return best * share if best > 0 else best / share


def count_cost(outcome: Outcome, tokens: float, kind: str) -> float | None:
    return outcome.count_training_flops(tokens) if kind == "flops" else tokens


def find_crossing(curve: Curve, level: float) -> float:
    """The abscissa at which a curve first reaches a level that it reaches; linear between its points.

    >>> find_crossing([(100, 2.0), (200, 4.0), (300, 3.0)], 3.5)
    175.0
    """
    index = next(index for index, (_, score) in enumerate(curve) if score >= level)
    if index == 0:
        return curve[0][0]
    (left, low), (right, high) = curve[index - 1], curve[index]
    return left + (right - left) * (level - low) / (high - low)


def describe_reach(comparison: Comparison) -> list[str]:
    """The notes below the table: what the level is, and for a share of the best one the ratios to the baseline."""
    reach = find_reach(comparison)
    if reach is None:
        return []
    if reach.weakest:
        return [f"{reach.name}: of training, up to the best validation score of {reach.weakest}, the weakest"]
    share = f"{100 * comparison.analysis.reach_share:.0f} %"
    notes = [f"{reach.name}: of training, up to {share} of the best validation score; means of the runs that reach it"]
    baseline = find_baseline(comparison)
    return notes + [
        note for name in comparison.arms if name != baseline and (note := compare_costs(reach, name, baseline))
    ]


def compare_costs(reach: Reach, arm: str, baseline: str) -> str:
    """The ratio of the costs of two arms, the geometric mean over the seeds that both have, with its 95 % interval;
    empty unless all runs of both reach the level."""
    one, two = reach.costs.get(arm, {}), reach.costs.get(baseline, {})
    if reach.missed.get(arm) or reach.missed.get(baseline):
        return ""
    ratio = estimate_over_seeds([log(one[seed] / two[seed]) for seed in one if seed in two])
    if ratio is None:
        return ""
    mean, low, high = (exp(value) for value in (ratio.mean, ratio.low, ratio.high))
    return f"{reach.name}: {arm} needs {mean:.2f} [{low:.2f}, {high:.2f}] of those of {baseline}"
