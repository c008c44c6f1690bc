"""An encoder without attention learns: hidden words from the others, and what a text says."""

import random

STEPS = {"steps": 80, "validate_every": 80, "schedule": {"lr": 0.005, "warmup": 10}}


def test_hidden_words_are_learnt_from_the_others(learn, tmp_path):
    """A hidden word follows from any other, and none is more frequent."""
    lines = [" ".join([word] * length) for word in ("cat", "dog", "owl", "fox") for length in range(6, 14)] * 6
    random.Random(0).shuffle(lines)
    (tmp_path / "topics.txt").write_text("\n".join(lines))
    data = {"train": str(tmp_path / "topics.txt"), "valid": str(tmp_path / "topics.txt"), "format": "lines"}
    task = {"kind": "masked", "context": 16, "next_sentence": False}
    run = learn(task, data, "words", {"kind": "fnet-tiny"}, **STEPS)
    accuracy = next(score for score in run.evaluate().scores if score.name == "accuracy")
    assert accuracy.low > 60 > 100 / 4  # a guess by frequency
    assert run.fill_mask(["fox fox fox [MASK] fox fox"], count=1)[0][0][0].word == "fox"


def test_what_is_not_good_is_bad(learn, judged):
    run = learn("classify", judged, "words", {"kind": "fnet-tiny", "pool": "first"}, **STEPS)
    found = run.classify(["a b good", "c not good", "b a c bad"])
    assert [max(scores, key=scores.get) for scores in found] == ["pos", "neg", "neg"]
    alone = run.classify(["a b good"])[0]  # texts of other lengths in a batch change nothing
    assert abs(alone["pos"] - found[0]["pos"]) < 1e-5
