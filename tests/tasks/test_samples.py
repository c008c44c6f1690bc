"""What a run writes at each validation, to be looked at."""

import json

import pytest

from headwise.experiment.config import parse_experiment
from headwise.experiment.run import train_experiment
from headwise.runs import Run

TEXT = "to be or not to be, that is the question\n"
SHORT = {"steps": 4, "validate_every": 2, "batch_size": 4, "threads": 1, "samples": 2}
LINES = {"train": "texts.txt", "valid": "texts.txt", "format": "lines"}
SMALL = {"width": 16, "heads": 2}
GPT, BERT = ({"kind": kind, "depth": 1, **SMALL} for kind in ("gpt", "bert"))
T5, TRANSFORMER = ({"kind": kind, **SMALL} for kind in ("t5", "transformer"))
KINDS = {
    "language-model": {"task": {"kind": "language-model", "context": 32}, "model": GPT, "data": LINES},
    "masked": {"task": {"kind": "masked", "context": 32}, "model": BERT, "data": LINES},
    "denoise": {"task": {"kind": "denoise", "context": 32}, "model": T5, "data": LINES},
    "counted": {"task": "language-model", "model": {"kind": "ngram", "order": 2}, "data": LINES},
    "transduce": {"task": "transduce", "model": TRANSFORMER},
    "classify": {"task": "classify", "model": TRANSFORMER},
    "classify-images": {"task": "classify-images", "model": {"kind": "vit-tiny"}, "data": {"name": "digits"}},
}  # fmt: skip


def trained(folder, kind, **train):
    (folder / "texts.txt").write_text(TEXT * 6)
    (folder / "pairs.tsv").write_text("a b\tb\nb a\ta\nc a\ta\na c\tc\n")
    tables = {"data": {"train": "pairs.tsv", "valid": "pairs.tsv"}, "tokeniser": {"kind": "words"}, **KINDS[kind]}
    files = {key: str(folder / value) if key in ("train", "valid") else value for key, value in tables["data"].items()}
    tables |= {"name": kind, "data": {**files, "cache": str(folder / "cache")}, "train": {**SHORT, **train}}
    if kind == "classify-images":
        del tables["tokeniser"]
    return train_experiment(parse_experiment(tables), folder / f"runs-{train.get('samples', 2)}")[0]


@pytest.mark.parametrize("kind", KINDS)
def test_every_validation_keeps_what_the_model_makes_of_the_same_examples(tmp_path, kind):
    run = trained(tmp_path, kind)
    kept = [row["samples"] for row in run.metrics.rows() if "valid" in row]
    assert len(kept) == (1 if kind == "counted" else 2)
    for samples in kept:
        assert [set(each) for each in samples] == [{"source", "output", "reference"}] * 2
        assert [each["source"] for each in samples] == [each["source"] for each in kept[0]]
        assert all(each["reference"] for each in samples)
        if kind != "denoise":  # after four steps its decoder writes no sentinel, so nothing after one
            assert any(each["output"] for each in samples)


def test_a_hidden_word_and_the_rest_of_a_text_stand_beside_the_guess(tmp_path):
    (masked, *_), (written, *_) = (last(trained(tmp_path, kind)) for kind in ("masked", "language-model"))
    assert masked["source"] == "to be or not to [MASK] that is the question" and masked["reference"] == "be,"
    assert (written["source"] + " " + written["reference"]).split() == TEXT.split()


def last(run: Run) -> list[dict[str, str]]:
    return run.metrics.rows()[-1]["samples"]


def test_looking_changes_nothing(tmp_path):
    looked, blind = (trained(tmp_path, "language-model", samples=count) for count in (2, 0))
    weights = [(run.checkpoint_path(4) / "model.safetensors").read_bytes() for run in (looked, blind)]
    assert weights[0] == weights[1]
    assert "samples" not in json.dumps(blind.metrics.rows())
