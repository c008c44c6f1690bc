"""Our scores against published ones: rank correlation, agreement of pairs, and which arms beat a baseline.

The arms of a table are the sample. Spearman's correlation is of our means over seeds with the published figures, its
interval from a bootstrap over arms and, within each arm, over seeds. The ceiling is the correlation that two noisy
measurements of the same ranking would have: the root of the product of their reliabilities, ours by split halves of
the seeds (Spearman 1910, Brown 1910), the published one from its standard deviations. Arms are tested against the
baseline with a two-sided t test, corrected by Holm (1979) for their number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from math import inf, isfinite, sqrt
from statistics import fmean, median, variance
from typing import Any

import numpy as np

from headwise.compare.config import AnalysisConfig
from headwise.compare.estimate import LEVEL, student_p_value
from headwise.compare.values import Comparison
from headwise.evaluate.agreement import rank_values

RESAMPLES = 1000
FEWEST = 3  # arms of a rank correlation
UNSTABLE = 4.0  # times the median standard deviation over seeds: such an arm is not pooled
STANDARD_ERRORS = 1.96  # of a difference that is more than noise

Seeds = Mapping[int, float]  # an arm's finite values, by seed


@dataclass(frozen=True)
class Figure:
    """The published score of an arm."""

    value: float
    error: float | None  # standard error; None: not published


@dataclass(frozen=True)
class Correlation:
    """Spearman's rank correlation of ours with published scores, with a 95 % bootstrap interval."""

    value: float
    low: float | None  # None: too few resamples have a correlation
    high: float | None
    arms: int
    reliability: float | None  # of our means over seeds; None: some arm has one seed
    ceiling: float | None  # of the correlation, given the noise of both


@dataclass(frozen=True)
class Pairs:
    """Pairs of arms that differ by more than noise in ours and in published scores."""

    agreeing: int  # differ in the same direction
    differing: int
    total: int  # with those within noise

    @property
    def share(self) -> float:
        return self.agreeing / self.differing if self.differing else 0.0


@dataclass(frozen=True)
class Noise:
    """The variance of a score over seeds: one pooled over arms, but for unstable arms their own."""

    variance: float
    freedom: int  # degrees of freedom of the pooled variance
    unstable: Mapping[str, float]  # their variances

    @property
    def std(self) -> float:
        return sqrt(self.variance)

    def square_error(self, arm: str, seeds: int) -> float:
        """The squared standard error of an arm's mean over so many seeds."""
        return self.unstable.get(arm, self.variance) / seeds


@dataclass(frozen=True)
class Improvement:
    """Arms that differ from the baseline, after Holm's correction."""

    baseline: str
    p_values: Mapping[str, float]  # corrected, by arm
    better: tuple[str, ...]
    worse: tuple[str, ...]

    @property
    def most_improve(self) -> bool:
        return 2 * len(self.better) > len(self.p_values)


@dataclass(frozen=True)
class Analysis:
    """One score of a comparison against its published figures. What cannot be computed is None."""

    score: str
    correlation: Correlation | None
    excluded: tuple[str, ...]  # the arms with the worst published figures
    correlation_without_worst: Correlation | None
    pairs: Pairs | None
    noise: Noise | None
    improvement: Improvement | None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def analyse(comparison: Comparison) -> list[Analysis]:
    """The analysis of each score that the table asks for; empty if it asks for none."""
    return [analyse_score(comparison, score) for score in comparison.analysis.published]


def analyse_score(comparison: Comparison, score: str) -> Analysis:
    """Compare one score of all arms with its published figures."""
    settings, lower = comparison.analysis, bool(comparison.analysis.is_lower_better(score))
    values = collect_values(comparison, score)
    figures = collect_figures(comparison, score, values)
    ordered = sorted(figures, key=lambda arm: figures[arm].value, reverse=lower)  # the worst first
    excluded = ordered[: settings.without_worst]
    others = {arm: figure for arm, figure in figures.items() if arm not in excluded}
    noise = estimate_noise(values)
    return Analysis(
        score=score,
        correlation=correlate(values, figures),
        excluded=tuple(excluded),
        correlation_without_worst=correlate(values, others) if excluded else None,
        pairs=count_pairs(values, figures, noise) if noise else None,
        noise=noise,
        improvement=find_improvements(values, find_baseline(comparison), lower, noise),
    )


def find_baseline(comparison: Comparison) -> str:
    """The arm that others are tested against."""
    return comparison.analysis.baseline or next(iter(comparison.arms), "")


def collect_values(comparison: Comparison, score: str) -> dict[str, Seeds]:
    """The finite values of a score by arm and seed; arms without any are left out."""
    values = {
        name: {
            seed: outcome.scores[score].value
            for seed, outcome in arm.outcomes.items()
            if score in outcome.scores and isfinite(outcome.scores[score].value)
        }
        for name, arm in comparison.arms.items()
    }
    return {name: seeds for name, seeds in values.items() if seeds}


def collect_figures(comparison: Comparison, score: str, values: Mapping[str, Seeds]) -> dict[str, Figure]:
    """The published score of each arm that has one and values of ours; negated if its better direction is the other."""
    key, sign, figures = comparison.analysis.get_published(score), comparison.analysis.get_sign(score), {}
    for name in values:
        published = comparison.arms[name].published
        if key in published.scores:
            std = published.std.get(key)
            figures[name] = Figure(sign * published.scores[key], None if std is None else std / sqrt(published.runs))
    return figures


def correlate(values: Mapping[str, Seeds], figures: Mapping[str, Figure]) -> Correlation | None:
    """Spearman's correlation of our means with published figures; None for too few arms, or all equal ones."""
    if len(figures) < FEWEST:
        return None
    groups = [list(values[arm].values()) for arm in figures]
    published = np.array([figure.value for figure in figures.values()])
    value = rank_correlation(np.array([fmean(group) for group in groups]), published)
    if value is None:
        return None
    low, high = bootstrap_correlation(groups, published)
    reliability = estimate_reliability([values[arm] for arm in figures])
    ceiling = None
    if reliability is not None:
        ceiling = sqrt(reliability * estimate_published_reliability(list(figures.values())))
    return Correlation(value, low, high, len(figures), reliability, ceiling)


def rank_correlation(ours: np.ndarray, published: np.ndarray) -> float | None:
    """Spearman rank correlation, ties with their mean rank; None if one side is constant.

    >>> round(rank_correlation(np.array([1.0, 2.0, 30.0, 3.0]), np.array([1.0, 2.0, 3.0, 4.0])), 6)
    0.8
    """
    one, two = (ranks - ranks.mean() for ranks in map(rank_values, (ours, published)))
    scale = sqrt((one @ one) * (two @ two))
    return float(one @ two) / scale if scale else None


def bootstrap_correlation(
    groups: Sequence[Sequence[float]], published: np.ndarray, resamples: int = RESAMPLES, seed: int = 0
) -> tuple[float | None, float | None]:
    """The 95 % percentile interval of Spearman's ρ over arms and, within each arm, over its seeds."""
    random = np.random.default_rng(seed)
    counts = np.array([len(group) for group in groups])
    values = np.zeros((len(groups), counts.max()))  # (arms A, seeds S), filled up with zeros
    for row, group in zip(values, groups, strict=True):
        row[: len(group)] = group
    # an arm that is drawn twice has the same mean twice: another would be a difference where published ones are tied
    seeds = random.integers(counts[:, None], size=(resamples, *values.shape))  # (R, A, S)
    is_drawn = np.arange(counts.max()) < counts[:, None]  # (A, S): as many as the arm has
    means = (values[np.arange(len(groups))[:, None], seeds] * is_drawn).sum(-1) / counts  # (R, A)
    arms = random.integers(len(groups), size=means.shape)  # (R, A)
    means = np.take_along_axis(means, arms, 1)
    correlations = map(rank_correlation, means, published[arms])
    drawn_correlations = [correlation for correlation in correlations if correlation is not None]
    if len(drawn_correlations) < resamples / 2:
        return None, None
    tail = 50 * (1 - LEVEL)
    low, high = np.percentile(drawn_correlations, [tail, 100 - tail])
    return float(low), float(high)


def estimate_reliability(arms: Sequence[Seeds]) -> float | None:
    """Split-half reliability of the means over S seeds: the mean rank correlation r of two disjoint halves of h = ⌊S/2⌋
    seeds, over all such halves; by Spearman-Brown that of S seeds is f r / (1 + (f - 1) r) with f = S / h."""
    seeds = sorted({seed for values in arms for seed in values})
    half, correlations = len(seeds) // 2, []
    for first in combinations(seeds, half) if half else ():
        for second in combinations(sorted(set(seeds).difference(first)), half):
            if first > second:  # each pair of halves once
                continue
            both = [values for values in arms if values.keys() >= {*first, *second}]
            means = (np.array([fmean(values[seed] for seed in part) for values in both]) for part in (first, second))
            if len(both) >= FEWEST and (correlation := rank_correlation(*means)) is not None:
                correlations.append(correlation)
    if not correlations:
        return None
    factor, mean = len(seeds) / half, max(fmean(correlations), 0.0)
    return factor * mean / (1 + (factor - 1) * mean)


def estimate_published_reliability(figures: Sequence[Figure]) -> float:
    """1 - (mean squared error) / variance; errors that are not published count as 0."""
    spread = variance(figure.value for figure in figures)
    noise = fmean((figure.error or 0.0) ** 2 for figure in figures)
    return min(max(1 - noise / spread, 0.0), 1.0) if spread else 0.0


def estimate_noise(values: Mapping[str, Seeds]) -> Noise | None:
    """The variance over seeds, pooled over the arms with several: Σ (n - 1) s² / Σ (n - 1). An arm whose standard
    deviation is more than four times the median has its own variance, so that a row that sometimes diverges does not
    blur all others. None if no arm has two seeds."""
    variances = {arm: variance(seeds.values()) for arm, seeds in values.items() if len(seeds) > 1}
    if not variances:
        return None
    limit = UNSTABLE**2 * median(variances.values())
    unstable = {arm: square for arm, square in variances.items() if square > limit}
    freedoms = {arm: len(values[arm]) - 1 for arm in variances if arm not in unstable}
    freedom = sum(freedoms.values())
    return Noise(sum(count * variances[arm] for arm, count in freedoms.items()) / freedom, freedom, unstable)


def count_pairs(values: Mapping[str, Seeds], figures: Mapping[str, Figure], noise: Noise) -> Pairs:
    """Count pairs of arms that differ by more than 1.96 standard errors of the difference, in ours and in published
    scores, and those of them that differ in the same direction."""
    means = {arm: fmean(values[arm].values()) for arm in figures}
    agreeing = differing = total = 0
    for one, two in combinations(figures, 2):
        ours, published = means[one] - means[two], figures[one].value - figures[two].value
        error = sqrt(sum(noise.square_error(arm, len(values[arm])) for arm in (one, two)))
        published_error = sqrt(sum((figures[arm].error or 0.0) ** 2 for arm in (one, two)))
        is_clear = abs(ours) > STANDARD_ERRORS * error and abs(published) > STANDARD_ERRORS * published_error
        total += 1
        differing += is_clear
        agreeing += is_clear and ours * published > 0
    return Pairs(agreeing, differing, total)


def find_improvements(
    values: Mapping[str, Seeds], baseline: str, lower: bool, noise: Noise | None
) -> Improvement | None:
    """Test every arm against the baseline; None if the baseline is missing or there is no noise to compare with."""
    if noise is None or baseline not in values or len(values) < 2:
        return None
    means = {arm: fmean(seeds.values()) for arm, seeds in values.items()}
    p_values = correct_holm(
        {arm: find_p_value(values, arm, baseline, noise) for arm in values if arm != baseline},
    )
    gains = {arm: (means[baseline] - means[arm]) * (1 if lower else -1) for arm in p_values}
    clear = [arm for arm, p_value in p_values.items() if p_value < 1 - LEVEL]
    return Improvement(
        baseline,
        p_values,
        better=tuple(arm for arm in clear if gains[arm] > 0),
        worse=tuple(arm for arm in clear if gains[arm] < 0),
    )


def find_p_value(values: Mapping[str, Seeds], arm: str, other: str, noise: Noise) -> float:
    """Of a two-sided t test: with the pooled variance, or Welch's where one of the arms has its own."""
    errors = {name: noise.square_error(name, len(values[name])) for name in (arm, other)}
    freedom = noise.freedom
    if noise.unstable.keys() & errors.keys():
        freedoms = {name: len(values[name]) - 1 if name in noise.unstable else noise.freedom for name in errors}
        # Welch-Satterthwaite; rounded down, which makes the test stricter
        parts = sum(error**2 / freedoms[name] for name, error in errors.items())
        freedom = max(int(sum(errors.values()) ** 2 / parts), 1)
    difference = abs(fmean(values[arm].values()) - fmean(values[other].values()))
    error = sqrt(sum(errors.values()))
    t = difference / error if error else (inf if difference else 0.0)
    return student_p_value(t, freedom)


def correct_holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Holm correction of p-values for their number m: the k-th smallest times m - k + 1, at least the one before it.

    >>> correct_holm({"a": 0.03, "b": 0.01, "c": 0.4})
    {'a': 0.06, 'b': 0.03, 'c': 0.4}
    """
    corrected, least = dict(p_values), 0.0
    for number, name in enumerate(sorted(p_values, key=lambda name: p_values[name])):
        least = max(least, min((len(p_values) - number) * p_values[name], 1.0))
        corrected[name] = least
    return corrected


def describe_analysis(comparison: Comparison) -> list[str]:
    """The analysis as sentences, for the notes below the table."""
    baseline, settings = find_baseline(comparison), comparison.analysis
    return [
        line
        for analysis in analyse(comparison)
        for line in _describe(analysis, baseline, settings.claim, name_published(settings, analysis.score))
    ]


def name_published(settings: AnalysisConfig, score: str) -> str:
    """The published figures that a score of ours is compared with, in words.

    >>> name_published(AnalysisConfig(against={"perplexity": "BLEU"}), "perplexity")
    'published BLEU (negated)'
    """
    return f"published {settings.get_published(score)}" + (" (negated)" if settings.get_sign(score) < 0 else "")


def format_correlation(correlation: Correlation) -> str:
    """
    >>> format_correlation(Correlation(0.7123, 0.5, 0.825, 52, None, None))
    '0.71 [0.50, 0.82]'
    """
    interval = "" if correlation.low is None else f" [{correlation.low:.2f}, {correlation.high:.2f}]"
    return f"{correlation.value:.2f}{interval}"


def _describe(analysis: Analysis, baseline: str, claim: str, published: str) -> list[str]:
    score, noise = analysis.score, analysis.noise
    which = f"the {published}" if published == f"published {score}" else f"{score} with the {published}"
    lines = [
        _describe_correlation(analysis.correlation, which),
        _describe_correlation(
            analysis.correlation_without_worst, f"{which}, without the {len(analysis.excluded)} worst published"
        ),
    ]
    if noise is None:
        lines.append(f"noise of {score}: not known, as no arm has two seeds; without it no pairs and no verdict")
        return [line for line in lines if line]
    own = f"; own for {'; '.join(noise.unstable)}" if noise.unstable else ""
    lines.append(f"noise of {score}: standard deviation {noise.std:.2g} over seeds, pooled over arms{own}")
    if (pairs := analysis.pairs) and pairs.differing:
        lines.append(
            f"pairs that differ in {score} by more than noise: {pairs.agreeing:,} of {pairs.differing:,} in the "
            f"published direction ({pairs.share:.0%}); {pairs.total - pairs.differing:,} do not differ"
        )
    if analysis.improvement:
        lines.append(_describe_improvement(analysis.improvement, score, claim))
    else:
        lines.append(f'no verdict on "{claim}": it needs the {score} of {baseline} and of another arm')
    return [line for line in lines if line]


def _describe_correlation(correlation: Correlation | None, which: str) -> str:
    if correlation is None:
        return ""
    ceiling = "" if correlation.ceiling is None else f"; noise allows {correlation.ceiling:.2f}"
    verb = "with" if which.startswith("the ") else "of"
    return f"Spearman {verb} {which}: {format_correlation(correlation)} over {correlation.arms} arms{ceiling}"


def _describe_improvement(improvement: Improvement, score: str, claim: str) -> str:
    """The verdict on the claim that most arms do not beat the baseline."""
    verdict = "does not hold" if improvement.most_improve else "holds"
    names = f" ({'; '.join(improvement.better)})" if improvement.better else ""
    return (
        f'"{claim}" {verdict} for {score}: {len(improvement.better)} of {len(improvement.p_values)} arms beat '
        f"{improvement.baseline}{names}, {len(improvement.worse)} are worse (t tests at 5 %, Holm's correction)"
    )
