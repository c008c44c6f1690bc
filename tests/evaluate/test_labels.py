"""Scores of labels: the formulas written out, and what they mean."""

import numpy as np
import pytest

from headwise.errors import UserError
from headwise.evaluate.labels import accuracy_by_text, confusion_matrix, macro_f1

LABELS = ["a", "b", "c"]


@pytest.fixture
def drawn():
    """Texts of several labels each, and outputs that are right about two times in three."""
    random = np.random.default_rng(0)
    references = [random.choice(LABELS, random.integers(1, 6), p=[0.7, 0.2, 0.1]).tolist() for _ in range(80)]
    wrong = random.random(400) < 1 / 3
    outputs, place = [], 0
    for row in references:
        outputs.append([random.choice(LABELS) if wrong[place + i] else label for i, label in enumerate(row)])
        place += len(row)
    return outputs, references


def test_all_three_scores_follow_from_the_confusion(drawn):
    names, counts = confusion_matrix(*drawn)
    right = counts.diagonal()
    assert names == LABELS
    assert accuracy_by_text(*drawn).value == pytest.approx(100 * right.sum() / counts.sum())
    precision, recall = right / counts.sum(0), right / counts.sum(1)
    assert macro_f1(*drawn).value == pytest.approx(100 * np.mean(2 * precision * recall / (precision + recall)))


def test_intervals_hold_the_value_and_narrow_with_more_texts(drawn):
    for score in (accuracy_by_text, macro_f1):
        few, many = (score(*(side * times for side in drawn)) for times in (1, 9))
        assert few.low < few.value < few.high and few.value == pytest.approx(many.value)
        assert many.high - many.low == pytest.approx((few.high - few.low) / 3, rel=0.25)


def test_words_of_a_text_are_not_independent():
    """Ten texts, each all right or all wrong: there are ten observations, not a thousand."""
    references = [["a"] * 100] * 10
    outputs = [["a"] * 100] * 5 + [["b"] * 100] * 5
    score = accuracy_by_text(outputs, references)
    assert score.high - score.low > 40


def test_a_rare_label_weighs_as_much_as_a_frequent_one():
    references, outputs = [["a"] * 99 + ["b"]], [["a"] * 100]
    assert accuracy_by_text(outputs, references).value == 99
    assert macro_f1(outputs, references).value == pytest.approx(100 * (2 * 99 / 199) / 2)


def test_a_label_that_only_a_model_uses_is_an_error_but_no_class():
    score = macro_f1([["a", "z"]], [["a", "a"]])
    assert score.value == pytest.approx(200 / 3) and "1 labels" in score.detail
    assert confusion_matrix([["a", "z"]], [["a", "a"]])[0] == ["a", "z"]


def test_different_numbers_of_labels_are_refused_with_their_place():
    for score in (accuracy_by_text, macro_f1, confusion_matrix):
        with pytest.raises(UserError, match="text 2 has 1 labels but 2 references"):
            score([["a"], ["a"]], [["a"], ["a", "b"]])
