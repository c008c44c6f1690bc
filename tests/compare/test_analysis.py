"""Our scores against published ones: closed forms and scipy, on made-up outcomes."""

import json
from math import nan, sqrt
from pathlib import Path
from statistics import fmean, variance

import numpy as np
import pytest
from scipy import stats

from headwise.compare import render
from headwise.compare.analysis import (
    Figure,
    Noise,
    analyse,
    bootstrap_correlation,
    correct_holm,
    count_pairs,
    describe_analysis,
    estimate_noise,
    estimate_published_reliability,
    estimate_reliability,
    find_improvements,
    find_p_value,
    rank_correlation,
)
from headwise.compare.config import AnalysisConfig, ComparisonConfig, Published
from headwise.compare.estimate import student_p_value
from headwise.compare.plot_published import find_scale, plot_published
from headwise.compare.suites import build_notes, draw_suite
from headwise.compare.values import Arm, Comparison, Outcome
from headwise.errors import UserError
from headwise.evaluate.score import Score

RANDOM = np.random.default_rng(7)


def build_comparison(values, published, std=None, **settings):
    """Arms named a, b, ... from lists of losses over seeds; published losses, and their deviations over 4 runs."""
    arms = {}
    for number, (name, losses) in enumerate(values.items()):
        outcomes = {
            seed: Outcome({"loss": Score("loss", loss, nan, nan)}, 1, None, None, 1.0, Path(), Path(), steps=120)
            for seed, loss in enumerate(losses, 1)
        }
        figure = Published(
            scores={"loss": published[number]}, std={"loss": std[number]} if std else {}, runs=4 if std else 1
        )
        arms[name] = Arm(name, outcomes, published=figure)
    analysis = AnalysisConfig(published=("loss",), lower=True, **settings)
    return Comparison("made up", arms, score="loss", lower=True, analysis=analysis)


def by_seed(**arms):
    return {name: dict(enumerate(values, 1)) for name, values in arms.items()}


def test_rank_correlation_is_that_of_scipy_with_ties():
    ours, published = RANDOM.integers(0, 9, 40).astype(float), RANDOM.integers(0, 9, 40).astype(float)
    assert rank_correlation(ours, published) == pytest.approx(stats.spearmanr(ours, published).statistic)
    assert rank_correlation(ours, np.ones(40)) is None


def test_the_interval_covers_arms_and_seeds():
    """With exact seeds only the draw of arms counts: then the interval is that of scipy's bootstrap."""
    ours = RANDOM.normal(size=30)
    published = ours + RANDOM.normal(size=30)
    low, high = bootstrap_correlation([[value] * 3 for value in ours], published, resamples=4000)
    expected = stats.bootstrap(
        (ours, published),
        lambda one, two: stats.spearmanr(one, two).statistic,
        paired=True,
        vectorized=False,
        method="percentile",
        n_resamples=1000,
        rng=np.random.default_rng(0),
    ).confidence_interval
    assert (low, high) == pytest.approx((expected.low, expected.high), abs=0.06)
    noisy = [[value - 3, value, value + 3] for value in ours]  # the same means, with noise over seeds
    assert bootstrap_correlation(noisy, published)[0] < low - 0.1


def test_arms_may_have_different_numbers_of_seeds():
    """One arm of three seeds, others of one: a drawn mean is of as many seeds as the arm has."""
    low, high = bootstrap_correlation([[5.0, 5.0, 5.0], [6.0], [7.0, 7.0], [8.0]], np.array([1.0, 2.0, 3.0, 4.0]))
    assert (low, high) == pytest.approx((1.0, 1.0))


def test_reliability_of_two_seeds_is_spearman_brown():
    one, two = RANDOM.normal(size=(2, 25))
    two += 2 * one
    half = stats.spearmanr(one, two).statistic
    arms = [{1: first, 2: second} for first, second in zip(one, two, strict=True)]
    assert estimate_reliability(arms) == pytest.approx(2 * half / (1 + half))


def test_reliability_of_three_seeds_rests_on_all_pairs_of_seeds():
    seeds = RANDOM.normal(size=25) * 2 + RANDOM.normal(size=(3, 25))
    pairs = [stats.spearmanr(seeds[i], seeds[j]).statistic for i, j in ((0, 1), (0, 2), (1, 2))]
    mean = fmean(pairs)
    arms = [dict(enumerate(column)) for column in seeds.T]
    assert estimate_reliability(arms) == pytest.approx(3 * mean / (1 + 2 * mean))
    assert estimate_reliability([{1: value} for value in seeds[0]]) is None


def test_reliability_of_four_seeds_rests_on_means_of_halves():
    seeds = RANDOM.normal(size=25) + RANDOM.normal(size=(4, 25))
    halves = [((0, 1), (2, 3)), ((0, 2), (1, 3)), ((0, 3), (1, 2))]
    mean = fmean(stats.spearmanr(seeds[list(a)].mean(0), seeds[list(b)].mean(0)).statistic for a, b in halves)
    arms = [dict(enumerate(column)) for column in seeds.T]
    assert estimate_reliability(arms) == pytest.approx(2 * mean / (1 + mean))


def test_published_noise_lowers_the_ceiling():
    figures = [Figure(value, 1.0) for value in (1.0, 3.0, 5.0)]  # variance 4, squared error 1
    assert estimate_published_reliability(figures) == pytest.approx(0.75)
    assert estimate_published_reliability([Figure(value, None) for value in (1.0, 3.0)]) == 1.0
    values = {"a": [1.0, 1.0], "b": [2.0, 2.0], "c": [3.0, 3.0], "d": [4.0, 4.0]}
    (analysis,) = analyse(build_comparison(values, [1.0, 3.0, 5.0, 7.0], std=[2.0] * 4))  # errors 2 / √4
    assert analysis.correlation.value == pytest.approx(1.0)
    assert analysis.correlation.reliability == pytest.approx(1.0)
    assert analysis.correlation.ceiling == pytest.approx(sqrt(1 - 1 / variance([1, 3, 5, 7])))


def test_noise_is_pooled_and_a_diverging_arm_is_apart():
    values = by_seed(a=[1.0, 1.2], b=[2.0, 2.1, 2.3], c=[3.0, 3.3], d=[5.0], wild=[1.0, 9.0])
    noise = estimate_noise(values)
    pooled = (variance([1.0, 1.2]) + 2 * variance([2.0, 2.1, 2.3]) + variance([3.0, 3.3])) / 4
    assert (noise.variance, noise.freedom) == (pytest.approx(pooled), 4)
    assert noise.unstable == {"wild": pytest.approx(32.0)}
    assert noise.square_error("d", 1) == pytest.approx(pooled) and noise.square_error("wild", 2) == pytest.approx(16)
    assert estimate_noise(by_seed(a=[1.0], b=[2.0])) is None


def test_pairs_count_where_both_sides_differ_by_more_than_noise():
    """Standard errors: ours 0.1 for each mean of four seeds, so a difference needs 1.96 · √2 / 10 = 0.277; published
    0.05 for each, so 0.139."""
    noise = Noise(0.04, 12, {})
    values = by_seed(a=[1.0] * 4, b=[1.27] * 4, c=[1.3] * 4, d=[2.0] * 4)
    figures = {"a": Figure(5.0, 0.05), "b": Figure(6.0, 0.05), "c": Figure(6.1, 0.05), "d": Figure(5.5, 0.05)}
    # a-b too close in ours, b-c in both; a-c and a-d agree; b-d and c-d are the other way round
    pairs = count_pairs(values, figures, noise)
    assert (pairs.agreeing, pairs.differing, pairs.total) == (2, 4, 6) and pairs.share == 0.5
    close = figures | {"c": Figure(5.63, 0.05)}  # c-d is within the published noise of 0.139
    pairs = count_pairs(values, close, noise)
    assert (pairs.agreeing, pairs.differing) == (2, 3)


def test_p_values_are_those_of_scipy():
    for t, freedom in ((0.3, 1), (2.1, 2), (3.3, 7), (1.0, 104)):
        assert student_p_value(t, freedom) == pytest.approx(2 * stats.t.sf(t, freedom))
    values = by_seed(a=[1.0, 1.2, 1.3], b=[1.4, 1.9, 1.5])
    expected = stats.ttest_ind(list(values["a"].values()), list(values["b"].values())).pvalue
    assert find_p_value(values, "a", "b", estimate_noise(values)) == pytest.approx(expected)


def test_an_unstable_arm_has_welchs_test():
    values = by_seed(a=[1.0, 1.2, 1.1], b=[1.4, 1.3, 1.5], wild=[2.0, 9.0, 4.0])
    noise = estimate_noise(values)
    assert set(noise.unstable) == {"wild"}
    wild, base = variance(values["wild"].values()) / 3, noise.variance / 3
    freedom = int((wild + base) ** 2 / (wild**2 / 2 + base**2 / noise.freedom))
    t = (5.0 - 1.1) / sqrt(wild + base)
    assert find_p_value(values, "wild", "a", noise) == pytest.approx(2 * stats.t.sf(t, freedom))


def test_holm_by_hand():
    """Four p-values: 0.01 · 4, 0.02 · 3, then 0.022 · 2 which may not be less than 0.06, and 0.5 · 1."""
    corrected = correct_holm({"a": 0.022, "b": 0.5, "c": 0.01, "d": 0.02})
    assert corrected == pytest.approx({"a": 0.06, "b": 0.5, "c": 0.04, "d": 0.06})
    assert correct_holm({"a": 0.7, "b": 0.8}) == {"a": 1.0, "b": 1.0}


@pytest.mark.parametrize("lower", [True, False])
def test_arms_that_beat_the_baseline(lower):
    values = by_seed(base=[5.0, 5.1, 4.9], less=[3.0, 3.1, 2.9], same=[5.0, 5.05, 4.9], more=[7.0, 7.1, 6.9])
    improvement = find_improvements(values, "base", lower, estimate_noise(values))
    better, worse = (("less",), ("more",)) if lower else (("more",), ("less",))
    assert (improvement.better, improvement.worse) == (better, worse) and not improvement.most_improve
    assert set(improvement.p_values) == {"less", "same", "more"}
    assert find_improvements(values, "elsewhere", lower, estimate_noise(values)) is None


VALUES = {
    "base": [3.0, 3.02, 2.98],
    "good": [2.5, 2.51, 2.49],
    "fair": [2.8, 2.81, 2.79],
    "poor": [3.5, 3.51, 3.49],
    "worst": [3.2, 3.21, 3.19],
}


def test_the_notes_have_correlations_noise_pairs_and_the_verdict():
    comparison = build_comparison(
        VALUES, [2.0, 1.6, 1.8, 2.4, 2.9], baseline="base", without_worst=1, claim="few things help"
    )
    first, second, noise, pairs, verdict = describe_analysis(comparison)
    assert first.startswith("Spearman with the published loss: 0.90 [") and "over 5 arms; noise allows 1.00" in first
    assert second.startswith("Spearman with the published loss, without the 1 worst published: 1.00 [1.00, 1.00]")
    assert noise == "noise of loss: standard deviation 0.013 over seeds, pooled over arms"
    assert pairs.endswith("9 of 10 in the published direction (90%); 0 do not differ")
    assert verdict == (
        '"few things help" holds for loss: 2 of 4 arms beat base (good; fair), 2 are worse (t tests at 5 %, '
        "Holm's correction)"
    )
    most = {name: values for name, values in VALUES.items() if name != "worst"}
    (*_, verdict) = describe_analysis(build_comparison(most, [2.0, 1.6, 1.8, 2.4], claim="few things help"))
    assert verdict.startswith('"few things help" does not hold for loss: 2 of 3 arms beat base')


def test_the_direction_is_that_of_the_table_whatever_the_ranking_score():
    """The studio ranks by other scores, whose direction is not known."""
    config = ComparisonConfig(
        lower=True,
        arm=[{"name": "a", "published": {"loss": 1.0}}],
        analysis={"published": ["loss", "BLEU"]},
        experiment={},
    )
    assert config.analysis.is_lower_better("loss") is True and config.analysis.is_lower_better("BLEU") is False
    comparison = build_comparison(VALUES, [2.0, 1.6, 1.8, 2.4, 2.9]).rank_by("loss")
    (analysis,) = analyse(comparison)
    assert comparison.lower is None and analysis.improvement.better == ("good", "fair")


def test_a_selection_without_the_baseline_has_no_verdict():
    others = {name: values for name, values in VALUES.items() if name != "base"}
    *_, last = describe_analysis(build_comparison(others, [1.6, 1.8, 2.4, 2.9], baseline="base"))
    assert last == 'no verdict on "most arms do not beat the baseline": it needs the loss of base and of another arm'


def test_a_suite_has_the_analysis_of_each_table():
    comparison = build_comparison(VALUES, [2.0, 1.6, 1.8, 2.4, 2.9])
    notes = build_notes({"one": comparison, "two": comparison})
    assert sum(note.startswith(("one: Spearman", "two: Spearman")) for note in notes) == 2


def test_one_seed_has_a_correlation_and_no_verdict():
    values = {name: losses[:1] for name, losses in VALUES.items()}
    first, second = describe_analysis(build_comparison(values, [2.0, 1.6, 1.8, 2.4, 2.9]))
    assert first.startswith("Spearman with the published loss: 0.90 [") and "noise allows" not in first
    assert second == "noise of loss: not known, as no arm has two seeds; without it no pairs and no verdict"


def test_few_arms_and_arms_without_a_finite_score_are_no_error():
    (analysis,) = analyse(build_comparison({"a": [1.0, 1.1], "b": [nan, nan], "c": [2.0, 2.1]}, [1.0, 2.0, 3.0]))
    assert analysis.correlation is None and list(analysis.improvement.p_values) == ["c"]
    (analysis,) = analyse(build_comparison({"a": [], "b": []}, [1.0, 2.0]))
    assert analysis.noise is None and analysis.improvement is None


def test_all_formats_have_the_analysis(capsys):
    comparison = build_comparison(VALUES, [2.0, 1.6, 1.8, 2.4, 2.9], std=[0.1] * 5)
    for print_comparison in (render.print_text, render.print_markdown):
        print_comparison(comparison)
        page = capsys.readouterr().out
        assert "Spearman with the published loss: 0.90" in page and "steps/s" in page and "2 ± 0.1" in page
    render.print_json(comparison)
    data = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)  # no NaN
    analysis = data["analysis"]["loss"]
    assert analysis["correlation"]["value"] == pytest.approx(0.9) and analysis["improvement"]["better"] == [
        "good",
        "fair",
    ]
    assert data["arms"][0]["seeds"]["1"]["steps"] == 120


def test_one_seed_without_an_interval_has_no_margin():
    comparison = build_comparison({"a": [1.2345], "b": [1.5]}, [1.0, 2.0])
    _, (*_, first, _, _), (*_, second, difference, _) = render.build_rows(comparison)
    assert (first, second, difference) == ("1.234", "1.500", "+0.266")
    assert not any("±" in note for note in render.build_notes(comparison))


def test_the_picture_has_a_label_for_every_arm_and_the_correlation(tmp_path):
    comparison = build_comparison(VALUES, [2.0, 1.6, 1.8, 2.4, 2.9], std=[0.1] * 5)
    svg = draw_suite("", {"only": comparison}, tmp_path / "published.svg").read_text()
    assert all(f"<!-- {name} -->" in svg for name in VALUES)
    (analysis,) = analyse(comparison)
    low, high = analysis.correlation.low, analysis.correlation.high
    assert f"<!-- loss: Spearman 0.90 [{low:.2f}, {high:.2f}] -->" in svg
    with pytest.raises(UserError, match=r"none.svg: nothing is drawn, as no arm has a score and a published figure"):
        plot_published([build_comparison({"a": []}, [1.0])], tmp_path / "none.svg", "")


def test_the_scale_spreads_crowded_values_and_can_be_inverted():
    values = [1.0, 2.0, 2.1, 2.2, 2.3, 9.0]
    (compress, expand), (low, high) = find_scale(values)
    positions = compress(np.array(values))
    assert expand(positions) == pytest.approx(values)
    assert (positions[4] - positions[1]) / np.ptp(positions) > 3 * (2.3 - 2.0) / 8.0
    assert low < 1.0 and high > 9.0
    assert find_scale([1.0, 1.0, 1.0]) is None
