"""SER, WER, PER and CER by hand and by jiwer, with any listed reference accepted."""

import random

import jiwer
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwise.evaluate import edit_distance, phoneme_error_rate, sequence_error_rate, word_error_rate
from headwise.evaluate.error_rates import character_error_rate

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
    assert sequence_error_rate(outputs, listed).value == pytest.approx(100 / 3)


def test_per_divides_by_the_length_of_the_nearest_reference() -> None:
    # nearest of the first is "A B C D" (1 of 4), of the second "X" (0 of 1): 1 / 5, not 1 / 7
    score = phoneme_error_rate(["A B C", "X"], [["A B C D", "Q R S T U V"], ["X", "X Y Z"]])
    assert score.value == pytest.approx(20)


@pytest.mark.parametrize(
    ("name", "ours", "theirs"),
    [
        ("WER", word_error_rate, jiwer.wer),
        ("PER", phoneme_error_rate, jiwer.wer),
        ("CER", character_error_rate, jiwer.cer),
    ],
)
def test_token_error_rates_with_one_reference_are_jiwers(name, ours, theirs) -> None:
    chance = random.Random(1)
    words = ["a", "of", "cat", "tree", "stone"]
    references = [" ".join(chance.choices(words, k=chance.randint(1, 9))) for _ in range(200)]
    outputs = [" ".join(chance.choices(words, k=chance.randint(0, 9))) for _ in range(200)]
    score = ours(outputs, [[each] for each in references])
    assert score.name == name and score.value == pytest.approx(100 * theirs(references, outputs))


def test_the_sequence_error_rate_counts_items_and_the_word_error_rate_words() -> None:
    outputs, references = ["a b c d", "e f"], [["a b c x"], ["e f"]]
    whole = sequence_error_rate(outputs, references)
    assert (whole.name, whole.value) == ("SER", 50)
    assert word_error_rate(outputs, references).value == pytest.approx(100 / 6)


def test_an_empty_output_costs_its_whole_reference() -> None:
    assert phoneme_error_rate([""], [["A B"]]).value == 100
    assert word_error_rate([""], [["A B"]]).value == sequence_error_rate([""], [["A B"]]).value == 100
