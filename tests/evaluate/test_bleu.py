"""BLEU is sacreBLEU's own, and its fast resampling formula agrees with it."""

import random

import numpy as np
import pytest
from sacrebleu.metrics import BLEU

from headwise.errors import UserError
from headwise.evaluate import bleu, tokenised_bleu
from headwise.evaluate.bleu import bleu_from_statistics

WORDS = ["Ein", "Mann", "mit", "einem", "orangefarbenen", "Hut", ",", "der", "etwas", "anstarrt", "."]


def corpus(items: int, seed: int = 0) -> tuple[list[str], list[list[str]]]:
    chance = random.Random(seed)
    references = [[" ".join(chance.choices(WORDS, k=12)) for _ in range(2)] for _ in range(items)]
    outputs = [" ".join(w for w in first.split() if chance.random() > 0.2) for first, _ in references]
    return outputs, references


def test_raw_score_and_signature_are_sacrebleus() -> None:
    outputs, references = corpus(50)
    metric = BLEU()
    theirs = metric.corpus_score(outputs, [list(stream) for stream in zip(*references, strict=True)])
    ours = bleu(outputs, references)
    assert ours.value == theirs.score
    assert ours.detail == str(metric.get_signature())
    assert ours.low < ours.value < ours.high


def test_sentences_may_differ_in_their_number_of_references() -> None:
    score = bleu(["the cat sat on the mat", "a dog ran over there"], [["x", "the cat sat on the mat"], ["a dog"]])
    assert 0 < score.value < 100
    assert "nrefs:var" in score.detail


def test_tokenised_score_ignores_case_and_spacing_of_punctuation() -> None:
    outputs, references = ["Zwei Hunde rennen , schnell ."], [["zwei hunde rennen, schnell."]]
    score = tokenised_bleu(outputs, references, language="de")
    assert score.value == pytest.approx(100)
    assert "Moses de" in score.detail
    assert "case:lc" in score.detail
    assert "tok:none" in score.detail
    assert bleu(outputs, references).value < 60


@pytest.mark.parametrize("seed", range(30))
def test_vectorised_formula_equals_sacrebleu_also_where_it_smooths(seed: int) -> None:
    chance = np.random.default_rng(seed)
    length = int(chance.integers(0, 12))
    totals = [max(length - order, 0) for order in range(4)]
    matches = [int(chance.integers(0, total + 1)) * int(chance.integers(0, 2)) for total in totals]
    reference = int(chance.integers(1, 15))
    theirs = BLEU.compute_bleu(list(matches), list(totals), length, reference, smooth_method="exp").score
    ours = bleu_from_statistics(np.array([[*matches, *totals, length, reference]], dtype=float))[0]
    assert ours == pytest.approx(theirs, abs=1e-9)


def test_misaligned_empty_or_unreferenced_data_is_a_clear_error() -> None:
    with pytest.raises(UserError, match="2 outputs but 1 references"):
        bleu(["a", "b"], [["a"]])
    with pytest.raises(UserError, match="test set is empty"):
        bleu([], [])
    with pytest.raises(UserError, match="item 2 has no reference"):
        bleu(["a", "b"], [["a"], []])
