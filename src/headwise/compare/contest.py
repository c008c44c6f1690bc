"""The verdict on whether one arm beats the best of the others by a margin, on items that all have a value for.

A table names the arm, `analysis.contest`, and the smallest gain that counts, `analysis.margin`. Items are those of the
evaluation, whose outputs are positive numbers of which less is better, such as runtimes. The gain over an arm is one
less the geometric mean of the ratios; the best other arm is the one with the smallest geometric mean. Its interval is
the wider of Student's t over seeds, paired, and the bootstrap over items. The claim holds if the interval is above the
margin, fails if it is below, and is undecided otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, inf, isfinite, log
from statistics import fmean

import numpy as np

from headwise.compare.estimate import estimate_over_seeds
from headwise.compare.values import Arm, Comparison
from headwise.evaluate.bootstrap import bootstrap_interval
from headwise.utils.files import read_json

Values = Mapping[int, Mapping[str, float]]  # of an arm: seed -> item -> value; infinite: it has none


@dataclass(frozen=True)
class Contest:
    """The gain of an arm over the best other one, with its interval."""

    arm: str
    rival: str
    gain: float
    low: float
    high: float
    seeds: int
    items: int
    missing: int  # items, over all seeds, for which the arm has no value

    def judge(self, margin: float) -> str:
        if self.missing or self.high < margin:
            return "fails here"
        return "holds here" if self.low > margin else "is undecided here"


def read_values(arm: Arm) -> Values:
    """The outputs of each seed as numbers; of recorded runs, which have none, nothing."""
    return {seed: items for seed, outcome in arm.outcomes.items() if (items := _read_items(outcome.items))}


def _read_items(file: object) -> dict[str, float]:
    try:
        data = read_json(file)  # type: ignore[arg-type]
        pairs = zip(data["sources"], data["outputs"], strict=True)
        return {str(name): _to_number(output) for name, output in pairs}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _to_number(text: object) -> float:
    try:
        value = float(str(text))
    except ValueError:
        return inf
    return value if isfinite(value) and value > 0 else inf


def decide_contest(comparison: Comparison) -> Contest | None:
    """The contest of a table; None if it has none, or an arm is missing."""
    name = comparison.analysis.contest
    values = {arm: known for arm in comparison.arms if (known := read_values(comparison.arms[arm]))}
    ours = values.pop(name, None)
    values = {arm: known for arm, known in values.items() if arm not in comparison.analysis.not_in_contest}
    whole = {arm: each for arm, each in values.items() if all(map(isfinite, _list_values(each)))}
    if not ours or not whole:
        return None
    rival = min(whole, key=lambda arm: fmean(map(log, _list_values(whole[arm]))))
    seeds = sorted(set(ours) & set(whole[rival]))
    if not seeds:
        return None
    items = [
        item for item in ours[seeds[0]] if all(item in part[seed] for part in (ours, whole[rival]) for seed in seeds)
    ]
    ratios = np.array([[ours[seed][item] / whole[rival][seed][item] for item in items] for seed in seeds])  # (S, I)
    missing = int(np.isinf(ratios).sum())
    if missing or not items:
        return Contest(name, rival, -inf, -inf, -inf, len(seeds), len(items), missing)
    logs = np.log(ratios)
    low, high = _widest_interval(logs)
    return Contest(name, rival, 1 - exp(logs.mean()), 1 - exp(high), 1 - exp(low), len(seeds), len(items), 0)


def _widest_interval(logs: np.ndarray) -> tuple[float, float]:
    """The interval of the mean of (S, I) log ratios: over seeds or over items, whichever is wider."""
    rows = np.column_stack([logs.mean(0), np.ones(logs.shape[1])])
    over_items = bootstrap_interval(rows, lambda sums: sums[:, 0] / sums[:, 1])
    over_seeds = estimate_over_seeds(logs.mean(1).tolist())
    if over_seeds and over_seeds.high - over_seeds.low > over_items[1] - over_items[0]:
        return over_seeds.low, over_seeds.high
    return over_items


def _list_values(values: Values) -> list[float]:
    return [value for items in values.values() for value in items.values()]


def describe_contest(comparison: Comparison) -> list[str]:
    """The verdict as a sentence, for the notes below the table."""
    settings = comparison.analysis
    if not settings.contest:
        return []
    contest = decide_contest(comparison)
    if contest is None:
        needed = f"it needs {settings.contest} and another arm, with a seed in common"
        if any(outcome.recorded for arm in comparison.arms.values() for outcome in arm.outcomes.values()):
            needed = "recorded runs have no outputs to compare; --retrain measures them again"
        return [f'no verdict on "{settings.claim}": {needed}']
    verdict = f'"{settings.claim}" {contest.judge(settings.margin)}'
    if contest.missing:
        return [f"{verdict}: {contest.arm} has no {comparison.score} for {contest.missing} of its items"]
    seeds = f"{contest.seeds} seed" + "s" * (contest.seeds > 1)
    return [
        f"{verdict}: {comparison.score} of {contest.arm} {100 * contest.gain:+.1f} % "
        f"[{100 * contest.low:+.1f}, {100 * contest.high:+.1f}] under that of the best other arm, {contest.rival}; "
        f"{100 * settings.margin:g} % are asked for; {contest.items} items, {seeds}"
    ]
