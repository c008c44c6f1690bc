"""Ranges of keys are parsed by hand, and a wrong one is one sentence."""

import pytest

from headwise.errors import UserError
from headwise.search.space import Choice, IntRange, NumberRange, parse_range, parse_ranges


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a.b = log(1e-4, 1e-2)", NumberRange("a.b", 1e-4, 1e-2, log=True)),
        ("a=uniform(0,0.4)", NumberRange("a", 0.0, 0.4)),
        ("a = uniform(0, 1, 0.25)", NumberRange("a", 0.0, 1.0, step=0.25)),
        ("a = int(2, 6)", IntRange("a", 2, 6)),
        ("a = int(2, 6, 2)", IntRange("a", 2, 6, step=2)),
        ("a = int(1, 64, log)", IntRange("a", 1, 64, log=True)),
        ("a = choice(rotary, alibi)", Choice("a", ("rotary", "alibi"))),
        ('a = choice([1, 2], {kind = "x", n = 1}, "p, q")', Choice("a", ("[1, 2]", '{kind = "x", n = 1}', '"p, q"'))),
    ],
)
def test_a_range_is_read(text, expected):
    assert parse_range(text) == expected


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("lr", "is not a range; write it as 'train.schedule.lr = log(1e-4, 1e-2)'"),
        ("a = 3", "is not a range"),
        ("a = logg(1, 2)", "no range 'logg'; did you mean log?"),
        ("a = __import__('os')", "no range '__import__'"),
        ("a = log(0, 1)", "starts above 0, not at 0"),
        ("a = log(1, 2, 3)", "log takes a low and a high end, not 3 values"),
        ("a = uniform(2, 1)", "the low end 2 is not below the high end 1"),
        ("a = uniform(1, x)", "'x' is not a number"),
        ("a = uniform(1, inf)", "inf is not finite"),
        ("a = uniform(0, 1, 2)", "the step 2 must be above 0"),
        ("a = int(1.5, 3)", "whole numbers"),
        ("a = int(1, 3, 0)", "the step 0 must be above 0"),
        ("a = choice(x)", "at least two values"),
        ("a = choice(x, x)", "the same value twice"),
    ],
)
def test_a_wrong_range_is_one_sentence(text, part):
    with pytest.raises(UserError, match=r"^--over ") as error:
        parse_range(text)
    assert part in str(error.value) and "\n" not in str(error.value)


def test_a_key_has_one_range_and_there_is_at_least_one():
    with pytest.raises(UserError, match="a has 2 ranges"):
        parse_ranges(["a = int(1, 2)", "a = int(1, 3)"])
    with pytest.raises(UserError, match="nothing to search"):
        parse_ranges([])
