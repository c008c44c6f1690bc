"""Classification: one label for a text."""

import pytest

MODELS = [
    {"kind": "transformer-tiny", "wiring": "pre"},
    {"kind": "gru-tiny", "bidirectional": True, "depth": 1},
]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model["kind"])
def test_it_learns_what_two_words_mean_together(learn, judged, model):
    run = learn("classify", judged, "words", model)
    found = run.classify(["a b good", "a not good", "c bad"])
    assert [max(each, key=each.get) for each in found] == ["pos", "neg", "neg"]
    for each in found:
        assert set(each) == {"neg", "pos"} and sum(each.values()) == pytest.approx(1)
    scored = run.evaluate([("a good", "pos"), ("c not good", "pos"), ("a bad", "neg"), ("b bad", "neg")])
    assert scored.scores[0].value == 75 and scored.labels == ["neg", "pos"]
    assert scored.confusion.tolist() == [[2, 0], [1, 1]]


def test_a_label_of_a_test_set_that_training_never_had_counts_as_an_error(learn, judged):
    run = learn("classify", judged, "words", MODELS[1], steps=1)
    found = run.evaluate([("a good", "neutral"), ("a bad", "neutral")])
    assert found.scores[0].value == 0 and "neutral" in found.labels
