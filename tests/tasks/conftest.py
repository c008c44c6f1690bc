"""Small data with a rule behind it, and a way to learn it."""

import random

import pytest

from headwise.experiment.config import parse_experiment
from headwise.experiment.load import load
from headwise.experiment.run import train_experiment

SMALL = {
    "steps": 120, "batch_size": 32, "validate_every": 60, "label_smoothing": 0.0, "threads": 1,
    "schedule": {"lr": 0.02, "warmup": 10},
}  # fmt: skip


@pytest.fixture
def learn(tmp_path):
    """Train a tiny model in a run folder and load it again."""

    def learnt(task, data, tokeniser, model, **train):
        tables = {
            "name": "tiny", "task": task, "data": {"cache": str(tmp_path / "cache"), **data}, "tokeniser": tokeniser,
            "model": {"dropout": 0.0, **model}, "train": {**SMALL, **train},
        }  # fmt: skip
        return load(train_experiment(parse_experiment(tables), tmp_path / "runs")[0].path)

    return learnt


@pytest.fixture
def tagged(tmp_path):
    """`run` and `walk` are verbs after `they` and nouns after `the`."""
    draw = random.Random(0)
    lines = []
    for _ in range(120):
        words, tags = [], []
        for _ in range(draw.randint(1, 3)):
            who, tag = draw.choice([("the", "NOUN"), ("they", "VERB")])
            words += [who, draw.choice(["run", "walk"])]
            tags += ["DET" if who == "the" else "PRON", tag]
        lines.append(" ".join(words) + "\t" + " ".join(tags) + "\n")
    (tmp_path / "tags.tsv").write_text("".join(lines))
    return {"train": str(tmp_path / "tags.tsv"), "valid": str(tmp_path / "tags.tsv")}


@pytest.fixture
def judged(tmp_path):
    """What is good is positive, what is bad or not good is negative."""
    draw = random.Random(0)
    ends = [("good", "pos"), ("not good", "neg"), ("bad", "neg")]
    lines = []
    for _ in range(200):
        end, label = draw.choice(ends)
        lines.append(f"{' '.join(draw.choices('abc', k=draw.randint(1, 3)))} {end}\t{label}\n")
    (tmp_path / "texts.tsv").write_text("".join(lines))
    return {"train": str(tmp_path / "texts.tsv"), "valid": str(tmp_path / "texts.tsv")}
