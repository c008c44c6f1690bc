"""Means and intervals against closed forms."""

from pathlib import Path

import pytest

from headwise.compare.estimate import estimate_difference, estimate_score
from headwise.compare.values import Arm, Comparison, Outcome
from headwise.errors import UserError
from headwise.evaluate.score import Score


def comparison(**arms):
    """Arms from {seed: (value, low, high)}."""
    return Comparison(
        "made up",
        {
            name: Arm(
                name,
                {
                    seed: Outcome({"SER": Score("SER", *score)}, 1, None, None, 1.0, Path(), Path())
                    for seed, score in seeds.items()
                },
            )
            for name, seeds in arms.items()
        },
        score="SER",
        lower=True,
    )


def test_seeds_are_paired():
    """Seeds 1 and 2 differ by 10, arms by 1 and 2: paired, the common part is gone."""
    result = comparison(a={1: (30, 0, 0), 2: (40, 0, 0), 3: (9, 0, 0)}, b={2: (38, 0, 0), 1: (29, 0, 0), 4: (1, 0, 0)})
    difference = estimate_difference(result, "a", "b", "SER")
    assert (difference.mean, difference.count, difference.over) == (1.5, 2, "seeds")
    assert difference.margin == pytest.approx(12.706 * 0.5, rel=1e-4)  # t s / √n = 12.706 · 0.7071 / 1.4142
    mean = estimate_score(result, "b", "SER")
    assert mean.mean == pytest.approx(68 / 3) and mean.count == 3


def test_one_seed_takes_the_interval_over_items():
    result = comparison(a={1: (30.0, 27.0, 34.0)}, b={1: (20.0, 17.0, 24.0)})
    assert (estimate_score(result, "a", "SER").low, estimate_score(result, "a", "SER").high) == (27.0, 34.0)
    difference = estimate_difference(result, "a", "b", "SER")
    assert (difference.mean, difference.low, difference.high, difference.over) == (10.0, 5.0, 15.0, "items")


def test_nothing_in_common_is_no_difference_and_an_unknown_arm_a_mistake():
    result = comparison(alpha={1: (30, 29, 31)}, beta={2: (20, 19, 21)})
    assert (
        estimate_difference(result, "alpha", "beta", "SER") is None and estimate_score(result, "alpha", "BLEU") is None
    )
    with pytest.raises(UserError, match="no arm is called 'alhpa'; did you mean alpha"):
        estimate_difference(result, "alhpa", "beta", "SER")
