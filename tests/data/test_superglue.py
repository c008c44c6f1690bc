"""SuperGLUE's files as distributed: one line of each task, in the official keys, and a classifier on one of them."""

import json
from pathlib import Path

import pytest
from sklearn.metrics import accuracy_score, f1_score

from headwise.data.config import TextDataConfig
from headwise.data.corpora import load_corpus
from headwise.errors import UserError
from headwise.evaluate.labels import accuracy_by_text, macro_f1
from headwise.experiment.config import parse_experiment
from headwise.experiment.load import load
from headwise.experiment.run import train_experiment

LINES: dict[str, tuple[str, dict[str, object], tuple[str, str]]] = {
    "boolq": (
        "BoolQ",
        {"question": "is a whale a fish", "passage": "Whales are mammals.", "idx": 0, "label": False},
        ("is a whale a fish\tWhales are mammals.", "false"),
    ),
    "cb": (
        "CB",
        {"premise": "He may have left.", "hypothesis": "he has left", "label": "neutral", "idx": 3},
        ("He may have left.\the has left", "neutral"),
    ),
    "copa": (
        "COPA",
        {"premise": "The glass fell.", "choice1": "It broke.", "choice2": "It sang.", "question": "effect",
         "label": 0, "idx": 1},
        ("The glass fell.\teffect\tIt broke.\tIt sang.", "0"),
    ),
    "rte": (
        "RTE",
        {"premise": "Anna bought a red car.", "hypothesis": "Anna has a car.", "label": "entailment", "idx": 0},
        ("Anna bought a red car.\tAnna has a car.", "entailment"),
    ),
    "wic": (
        "WiC",
        {"word": "bank", "sentence1": "A bank of a river.", "sentence2": "Money in the bank.", "idx": 0, "label": False,
         "start1": 2, "start2": 13, "end1": 6, "end2": 17, "version": 1.1},
        ("bank\tA bank of a river.\tMoney in the bank.", "false"),
    ),
    "wsc": (
        "WSC",
        {"text": "The cup did not fit in the bag: it was too small.", "idx": 0, "label": True,
         "target": {"span1_text": "the bag", "span1_index": 6, "span2_text": "it", "span2_index": 8}},
        ("The cup did not fit in the bag: it was too small.\tthe bag\tit", "true"),
    ),
}  # fmt: skip


def write_task(root: Path, task: str, rows: int = 2) -> None:
    folder, row, _ = LINES[task]
    path = root / "superglue" / folder
    path.mkdir(parents=True)
    for part in ("train", "val"):
        (path / f"{part}.jsonl").write_text("".join(json.dumps({**row, "idx": n}) + "\n" for n in range(rows)))


@pytest.mark.parametrize("task", LINES)
def test_official_lines_are_read(task: str, tmp_path: Path) -> None:
    write_task(tmp_path, task)
    corpus = load_corpus(TextDataConfig(name=f"superglue/{task}", root=str(tmp_path)))
    assert list(corpus.train) == corpus.valid == [LINES[task][2]] * 2 and not corpus.test


def test_a_missing_key_names_file_and_line(tmp_path: Path) -> None:
    write_task(tmp_path, "wsc")
    file = tmp_path / "superglue" / "WSC" / "val.jsonl"
    file.write_text('{"text": "a", "target": {"span1_text": "a"}, "label": true}\n')
    with pytest.raises(UserError, match=r"WSC/val\.jsonl, line 1: there is no key 'target\.span2_text'"):
        load_corpus(TextDataConfig(name="superglue/wsc", root=str(tmp_path)))


def test_scores_are_those_of_scikit_learn() -> None:
    true = ["entailment", "neutral", "contradiction", "neutral", "entailment", "contradiction", "neutral"]
    ours = ["entailment", "neutral", "neutral", "neutral", "contradiction", "contradiction", "entailment"]
    rows = [[label] for label in ours], [[label] for label in true]
    assert accuracy_by_text(*rows, resamples=0).value == pytest.approx(100 * accuracy_score(true, ours))
    assert macro_f1(*rows, resamples=0).value == pytest.approx(100 * f1_score(true, ours, average="macro"))


def test_a_classifier_learns_and_has_both_scores(tmp_path: Path) -> None:
    """CB's shape: a word of the hypothesis tells the label."""
    words = {"surely": "entailment", "never": "contradiction", "perhaps": "neutral"}
    rows = [
        {"premise": f"the {name} fell", "hypothesis": f"it {word} broke", "label": label}
        for name in ("cup", "door", "dog", "car", "tree", "boat", "roof", "rain")
        for word, label in words.items()
    ]
    folder = tmp_path / "superglue" / "CB"
    folder.mkdir(parents=True)
    for part in ("train", "val"):
        (folder / f"{part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings = {
        "name": "cb",
        "task": {"kind": "classify", "scores": ["accuracy", "f1"]},
        "data": {"name": "superglue/cb", "root": str(tmp_path), "cache": str(tmp_path / "cache")},
        "tokeniser": {"kind": "words"},
        "model": {"kind": "transformer-tiny", "dropout": 0.0},
        "train": {"steps": 40, "batch_size": 24, "threads": 1, "validate_every": 40, "samples": 0},
    }
    settings["train"]["schedule"] = {"kind": "cosine", "lr": 0.01, "warmup": 5}
    run, _ = train_experiment(parse_experiment(settings), tmp_path)
    accuracy, f1 = load(run.path).evaluate().scores
    assert (accuracy.name, f1.name) == ("accuracy", "F1") and accuracy.value > 90 and f1.value > 90
