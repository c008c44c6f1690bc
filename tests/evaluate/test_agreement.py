"""GLUE's correlations against their textbook forms."""

from __future__ import annotations

import numpy as np
import pytest

from headwise import UserError
from headwise.evaluate.agreement import label_f1, matthews, pearson, rank_values, spearman


def test_matthews_of_two_labels_is_the_phi_coefficient() -> None:
    random = np.random.default_rng(0)
    true = random.integers(0, 2, 300)
    ours = np.where(random.random(300) < 0.3, 1 - true, true)
    score = matthews(ours.astype(str).tolist(), true.astype(str).tolist())
    assert score.value == pytest.approx(100 * np.corrcoef(ours, true)[0, 1])
    assert score.low < score.value < score.high


def test_matthews_is_zero_for_one_answer_to_everything_and_full_for_three_right_labels() -> None:
    assert matthews(["a"] * 4, ["a", "b", "a", "b"]).value == 0
    assert matthews(list("abcab"), list("abcab"), resamples=0).value == pytest.approx(100)


def test_pearson_and_spearman_are_numpy_s() -> None:
    random = np.random.default_rng(1)
    x = random.normal(size=200)
    y = x**3 + random.normal(size=200) + 1e6
    assert pearson(x.tolist(), y.tolist()).value == pytest.approx(100 * np.corrcoef(x, y)[0, 1])
    assert spearman(x.tolist(), y.tolist()).value == pytest.approx(
        100 * np.corrcoef(rank_values(x), rank_values(y))[0, 1]
    )


def test_the_interval_covers_what_another_sample_would_give() -> None:
    random = np.random.default_rng(2)
    covered = 0
    for trial in range(60):
        x = random.normal(size=80)
        y = 0.6 * x + 0.8 * random.normal(size=80)  # correlation 0.6
        score = pearson(x.tolist(), y.tolist(), resamples=200, seed=trial)
        covered += score.low <= 60 <= score.high
    assert covered >= 50  # of 60, at a level of 95 %


def test_f1_counts_one_label_alone() -> None:
    assert label_f1("yes", ["no"] * 3, ["yes", "no", "no"]).value == 0
    assert label_f1("yes", ["yes", "yes", "no"], ["yes", "no", "no"], resamples=0).value == pytest.approx(200 / 3)


def test_references_that_are_all_equal_are_refused() -> None:
    with pytest.raises(UserError, match="all references are equal"):
        pearson([1.0, 2.0], [3.0, 3.0])
