"""Intervals: right coverage, same with the same seed; and the two scores that are plain means."""

import json
import math

import numpy as np
import pytest

from headwise.errors import UserError
from headwise.evaluate import Score, accuracy, perplexity
from headwise.evaluate.bootstrap import bootstrap_interval


def mean(sums: np.ndarray) -> np.ndarray:
    return sums[:, 0] / sums[:, 1]


def test_interval_matches_the_normal_approximation() -> None:
    hits = np.arange(1000) < 300
    low, high = bootstrap_interval(np.column_stack([hits, np.ones(1000)]), mean)
    half = 1.96 * math.sqrt(0.3 * 0.7 / 1000)
    assert low == pytest.approx(0.3 - half, abs=0.004)
    assert high == pytest.approx(0.3 + half, abs=0.004)


def test_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    chance = np.random.default_rng(0)
    covered = 0
    for seed in range(200):
        sample = chance.exponential(size=80)
        low, high = bootstrap_interval(np.column_stack([sample, np.ones(80)]), mean, resamples=200, seed=seed)
        covered += low <= 1 <= high
    assert 0.88 <= covered / 200 <= 0.99


def test_interval_is_a_function_of_the_seed() -> None:
    rows = np.column_stack([np.random.default_rng(0).normal(size=50), np.ones(50)])
    assert bootstrap_interval(rows, mean, seed=3) == bootstrap_interval(rows, mean, seed=3)
    assert bootstrap_interval(rows, mean, seed=3) != bootstrap_interval(rows, mean, seed=4)


def test_accuracy_counts_equal_items() -> None:
    score = accuracy(["a"] * 90 + ["b"] * 10, ["a"] * 100)
    assert score.value == 90
    assert 80 < score.low < 90 < score.high < 98


def test_perplexity_of_a_uniform_guess_is_the_vocabulary() -> None:
    counts = [3, 5, 7]
    score = perplexity([n * math.log(50) for n in counts], counts)
    assert score.value == pytest.approx(50)
    assert (score.low, score.high) == pytest.approx((50, 50))


def test_perplexity_weighs_tokens_not_items() -> None:
    assert perplexity([math.log(4), 0.0], [1, 3]).value == pytest.approx(4**0.25)


def test_perplexity_refuses_items_without_tokens() -> None:
    with pytest.raises(UserError, match="at least one token"):
        perplexity([1.0], [0])


def test_score_survives_json() -> None:
    score = Score("SER", 42.8, 41.9, 43.7, "12000 items", "%")
    assert Score(**json.loads(json.dumps(score.to_json()))) == score


def test_an_impossible_text_has_a_perplexity_and_no_interval() -> None:
    score = perplexity([np.inf, 1.0], [3, 4])
    assert score.value == np.inf
    assert np.isnan(score.low)
    assert str(score) == "perplexity inf (7 tokens)"
