"""WER and PER by hand and by jiwer, with any listed reference accepted."""

import random

import jiwer
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwise.evaluate import edit_distance, phoneme_error_rate, word_error_rate

tokens = st.lists(st.sampled_from("abcd"), min_size=1, max_size=90)


@given(tokens, tokens)
def test_edit_distance_is_jiwers(first: list[str], second: list[str]) -> None:
    result = jiwer.process_words(" ".join(first), " ".join(second))
    assert edit_distance(first, second) == result.substitutions + result.deletions + result.insertions


@pytest.mark.parametrize(("first", "second", "distance"), [("", "", 0), ("", "ab", 2), ("ab", "", 2)])
def test_edit_distance_of_nothing_is_the_other_length(first: str, second: str, distance: int) -> None:
    assert edit_distance(first, second) == distance


def test_any_listed_pronunciation_is_right() -> None:
    outputs = ["T AH M EY T OW", "T AH M AA T OW", "T OW"]
    listed = [["T AH M EY T OW", "T AH M AA T OW"]] * 3
    assert word_error_rate(outputs, listed).value == pytest.approx(100 / 3)


def test_per_divides_by_the_length_of_the_nearest_reference() -> None:
    # nearest of the first is "A B C D" (1 of 4), of the second "X" (0 of 1): 1 / 5, not 1 / 7
    score = phoneme_error_rate(["A B C", "X"], [["A B C D", "Q R S T U V"], ["X", "X Y Z"]])
    assert score.value == pytest.approx(20)


def test_per_with_one_reference_is_jiwers_word_error_rate() -> None:
    chance = random.Random(1)
    references = [" ".join(chance.choices("ABCDE", k=chance.randint(1, 9))) for _ in range(200)]
    outputs = [" ".join(chance.choices("ABCDE", k=chance.randint(1, 9))) for _ in range(200)]
    ours = phoneme_error_rate(outputs, [[each] for each in references]).value
    assert ours == pytest.approx(100 * jiwer.wer(references, outputs))


def test_an_empty_output_costs_its_whole_reference() -> None:
    assert phoneme_error_rate([""], [["A B"]]).value == 100
    assert word_error_rate([""], [["A B"]]).value == 100
