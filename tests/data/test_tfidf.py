"""The extractive stage: scores equal to those from scikit-learn's counts and weights, and the order that follows."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import TfidfVectorizer

from headwise.data.tfidf import rank_paragraphs, score_paragraphs

WORDS = ["cat", "Cat", "dog", "house", "runs", "the"]
TEXTS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=8).map(" ".join)


@settings(max_examples=60, deadline=None)
@given(title=TEXTS, paragraphs=st.lists(TEXTS, min_size=1, max_size=6))
def test_equal_to_scikit_learn(title: str, paragraphs: list[str]) -> None:
    """Unsmoothed, scikit-learn's weights are n(w) (log(N / N(w)) + 1): without the 1 they are the paper's."""
    vectorizer = TfidfVectorizer(token_pattern=r"\w+", norm=None, smooth_idf=False)
    weighted = vectorizer.fit_transform(paragraphs).toarray()  # (paragraphs, words)
    idf = vectorizer.idf_
    asked = np.isin(vectorizer.get_feature_names_out(), title.lower().split())
    expected = (weighted * (idf - 1) / idf)[:, asked].sum(1)
    assert score_paragraphs(title, paragraphs) == pytest.approx(expected.tolist(), rel=1e-9, abs=1e-12)


def test_a_word_of_every_paragraph_says_nothing() -> None:
    assert score_paragraphs("the cat", ["the the the", "the cat"]) == [0, pytest.approx(np.log(2))]


def test_equal_paragraphs_stay_in_their_order() -> None:
    paragraphs = ["no word", "about fish", "nor here", "fish and more fish"]
    assert rank_paragraphs("Fish", paragraphs) == ["fish and more fish", "about fish", "no word", "nor here"]
    assert rank_paragraphs("", paragraphs) == paragraphs
    assert rank_paragraphs("fish", []) == []
