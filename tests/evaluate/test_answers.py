"""Exact match and F1 of answers: values of SQuAD's official script, written out."""

import pytest

from headwise.evaluate.answers import exact_match, word_f1


@pytest.mark.parametrize(
    ("output", "references", "exact", "f1"),
    [
        ("The Eiffel Tower!", ["eiffel tower"], 100.0, 100.0),
        ("in Paris, France", ["Paris"], 0.0, 50.0),
        ("the the cat", ["cat cat"], 0.0, 200 / 3),
        ("Denver Broncos", ["Carolina Panthers", "Broncos"], 0.0, 200 / 3),
        ("", ["anything"], 0.0, 0.0),
        ("a", ["the"], 100.0, 100.0),  # nothing is left of either
        ("U.S.", ["us"], 100.0, 100.0),
        ("São Tomé", ["sao tome"], 0.0, 0.0),  # accents count
        ("ten ten", ["ten"], 0.0, 200 / 3),
    ],
)
def test_values_of_the_official_script(output: str, references: list[str], exact: float, f1: float) -> None:
    assert exact_match([output], [references], resamples=0).value == exact
    assert word_f1([output], [references], resamples=0).value == pytest.approx(f1)


def test_the_best_reference_counts_and_items_are_averaged() -> None:
    outputs, references = ["Rome", "Lyon"], [["Milan", "rome", "Rome Italy"], ["Paris"]]
    assert exact_match(outputs, references).value == word_f1(outputs, references).value == 50.0
