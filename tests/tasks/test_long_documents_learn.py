"""BigBird learns hidden words of texts that are more blocks long than one of them sees."""

import random


def test_hidden_words_are_learnt_from_the_blocks_that_are_seen(learn, tmp_path):
    lines = [" ".join([word] * length) for word in ("cat", "dog", "owl", "fox") for length in range(32, 40)] * 4
    random.Random(0).shuffle(lines)
    (tmp_path / "topics.txt").write_text("\n".join(lines))
    data = {"train": str(tmp_path / "topics.txt"), "valid": str(tmp_path / "topics.txt"), "format": "lines"}
    task = {"kind": "masked", "context": 48, "next_sentence": False}
    steps = {"steps": 60, "validate_every": 60, "batch_size": 16, "schedule": {"lr": 0.005, "warmup": 10}}
    run = learn(task, data, "words", {"kind": "bigbird-tiny", "next_sentence_head": False}, **steps)
    graph = run.model.encoder.stack.layers[0].parts[0].graph
    assert graph.width * graph.block < 32
    accuracy = next(score for score in run.evaluate().scores if score.name == "accuracy")
    assert accuracy.low > 60 > 100 / 4  # a guess by frequency
    assert run.fill_mask(["fox " * 20 + "[MASK]" + " fox" * 15], count=1)[0][0][0].word == "fox"
