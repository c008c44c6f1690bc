"""ROUGE beside the package that papers quote, and its parts beside their definitions."""

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rouge_score.rouge_scorer import RougeScorer

from headwise.errors import UserError
from headwise.evaluate import rouge_l, rouge_n
from headwise.evaluate.rouge import longest_common_subsequence

TEXTS = (
    "The cat sat on the mat.",
    "the cat, the CAT; and the cat's mat!",
    "A dog ran 3.5 miles in 1999 – naïve café über alles",
    "mat the on sat cat the",
    "",
    "...",
    "İstanbul'da 42 cats",
)
WORDS = st.lists(st.sampled_from(["the", "The", "cat", "sat.", "on-a", "3,5", "é"]), max_size=12).map(" ".join)


def ours(output, references):
    scores = rouge_l(output, references, 0), *(rouge_n(output, references, order, 0) for order in (1, 2))
    return [score.value / 100 for score in scores]


def theirs(output, references):
    found = RougeScorer(["rougeL", "rouge1", "rouge2"]).score_multi(references, output)
    return [found[name].fmeasure for name in ("rougeL", "rouge1", "rouge2")]


@pytest.mark.parametrize("output", TEXTS)
@pytest.mark.parametrize("reference", TEXTS)
def test_any_two_texts_have_the_package_s_scores(output, reference):
    assert ours([output], [[reference]]) == pytest.approx(theirs(output, [reference]), abs=1e-9)


@given(WORDS, st.lists(WORDS, min_size=1, max_size=3))
@settings(max_examples=100, deadline=None)
def test_of_several_references_the_best_counts(output, references):
    assert ours([output], [references]) == pytest.approx(theirs(output, references), abs=1e-9)


@given(st.text("abc", max_size=12), st.text("abc", max_size=12))
@settings(max_examples=200, deadline=None)
def test_the_longest_common_subsequence_is_that_of_the_definition(first, second):
    @cache
    def length(i, j):
        if not i or not j:
            return 0
        if first[i - 1] == second[j - 1]:
            return length(i - 1, j - 1) + 1
        return max(length(i - 1, j), length(i, j - 1))

    assert longest_common_subsequence(first, second) == length(len(first), len(second))


def test_a_test_set_has_the_mean_and_an_interval_over_its_items():
    outputs, references = ["a b", "c d", "e f"] * 20, [["a b"], ["c x"], ["y z"]] * 20
    score = rouge_l(outputs, references)
    assert score.value == pytest.approx(50.0)
    assert 35 < score.low < 50 < score.high < 65
    with pytest.raises(UserError, match="2 outputs but 1 references"):
        rouge_l(["a", "b"], [["a"]])
