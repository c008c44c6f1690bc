"""Small pretrained models, trained once, and tasks that begin with them."""

import random
from pathlib import Path

import pytest

from headwise.experiment.config import parse_experiment
from headwise.experiment.run import train_experiment

TRAIN = {
    "steps": 10, "batch_size": 16, "validate_every": 1000, "label_smoothing": 0.0, "threads": 1, "device": "cpu",
    "keep_checkpoints": 9,
    "schedule": {"kind": "constant", "lr": 0.01},
}  # fmt: skip
PRETRAINED = {
    "gpt": ("language-model", {"kind": "gpt2-tiny"}),
    "lm": ("language-model", {"kind": "transformer-tiny", "wiring": "pre"}),
    "bert": ("masked", {"kind": "bert-tiny"}),
}
FILES = {"language-model": "texts.txt", "masked": "texts.txt", "classify": "labels.tsv", "tag": "tags.tsv"}
ENDS = (("good", "pos"), ("not good", "neg"), ("bad", "neg"))


def write_texts(folder: Path) -> None:
    """Texts, their labels, and tags of their words."""
    draw = random.Random(0)
    rows = []
    for _ in range(120):
        end, label = draw.choice(ENDS)
        rows.append((" ".join([*draw.choices("abcd", k=draw.randint(1, 3)), end]), label))
    tagged = [(text, " ".join("LETTER" if len(word) == 1 else "WORD" for word in text.split())) for text, _ in rows]
    (folder / "texts.txt").write_text("".join(f"{text}\n" for text, _ in rows))
    for name, pairs in (("labels", rows), ("tags", tagged)):
        (folder / f"{name}.tsv").write_text("".join(f"{text}\t{target}\n" for text, target in pairs))


def data(folder: Path, task: str) -> dict[str, str]:
    file = str(folder / FILES[task])
    shape = {"format": "lines"} if FILES[task].endswith(".txt") else {}
    return {"train": file, "valid": file, "cache": str(folder / "cache"), **shape}


@pytest.fixture(scope="session")
def place(tmp_path_factory) -> Path:
    """A folder with the data, and `runs` that nobody changes."""
    folder = tmp_path_factory.mktemp("tuning")
    write_texts(folder)
    for name, (task, model) in PRETRAINED.items():
        tables = {
            "name": name, "task": {"kind": task, "context": 16}, "data": data(folder, task), "tokeniser": "words",
            "model": {"dropout": 0.0, **model}, "train": {**TRAIN, "steps": 40},
        }  # fmt: skip
        train_experiment(parse_experiment(tables), folder / "runs")
    return folder


@pytest.fixture
def tables(place):
    """An experiment's tables that begin with one of the pretrained models."""

    def made(task: str, init_from: str = "gpt", train: dict | None = None, **others) -> dict:
        return {
            "name": "tuned", "task": task, "data": data(place, task), "init_from": str(place / "runs" / init_from),
            "train": {**TRAIN, **(train or {})}, **others,
        }  # fmt: skip

    return made


@pytest.fixture
def learn(tables, tmp_path):
    """Train such an experiment; the run, and what was said about it."""

    def learnt(task: str, *arguments, **others):
        said: list[str] = []
        experiment = parse_experiment(tables(task, *arguments, **others))
        run, _ = train_experiment(experiment, tmp_path / "runs", announce=said.append)
        return run, said

    return learnt
