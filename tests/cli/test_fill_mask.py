"""Hidden words and vectors of texts from the command line, with a model that is hardly trained."""

import json
from io import BytesIO, TextIOWrapper

import numpy as np
import pytest

from headwise.experiment.config import parse_experiment
from headwise.experiment.run import train_experiment


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("masked")
    (folder / "text").write_text("the cat sat on the mat\nthe dog sat on the rug\n" * 20)
    experiment = {
        "name": "masked", "task": {"kind": "masked", "context": 16}, "tokeniser": "words", "model": "bert-tiny",
        "data": {"train": str(folder / "text"), "valid": str(folder / "text"), "format": "lines",
                 "cache": str(folder / "cache")},
        "train": {"steps": 60, "batch_size": 16, "threads": 1, "schedule": {"lr": 0.01, "warmup": 5}},
    }  # fmt: skip
    return train_experiment(parse_experiment(experiment), folder / "runs")[0].path


def test_fill_mask_prints_words_with_probabilities(headwise, run):
    lines = headwise("fill-mask", run, "the cat [MASK] on the mat").out.splitlines()
    words = [line.split("\t") for line in lines]
    assert len(words) == 5 and words[0][1] == "sat"
    assert [float(p) for p, _ in words] == sorted((float(p) for p, _ in words), reverse=True)
    two = headwise("fill-mask", run, "the [MASK] sat on the [MASK]", "[MASK] cat", "--count", 2).out
    assert [len(block.splitlines()) for block in two.split("\n\n")] == [2, 2, 2]


def test_a_line_break_is_printed_as_an_escape(headwise, tmp_path):
    (tmp_path / "text").write_text("ab ba\nba ab\n" * 40)
    experiment = {
        "name": "letters", "task": {"kind": "masked", "context": 16, "next_sentence": False}, "model": "bert-tiny",
        "tokeniser": "characters",
        "data": {"train": "text", "valid": "text", "format": "text", "cache": "cache"},
        "train": {"steps": 1, "batch_size": 4, "threads": 1},
    }  # fmt: skip
    run = train_experiment(parse_experiment(experiment), tmp_path / "runs")[0].path
    words = [line.split("\t")[1] for line in headwise("fill-mask", run, "a[MASK] ba", "--count", 4).out.splitlines()]
    assert sorted(words) == [" ", "\\n", "a", "b"]


def test_json_has_a_list_for_each_mask(headwise, run, monkeypatch):
    stdin = TextIOWrapper(BytesIO(b"the [MASK] sat\n[MASK] and [MASK]\n"))
    monkeypatch.setattr("sys.stdin", stdin)
    found = [json.loads(line) for line in headwise("fill-mask", run, "--json", "--count", 3).out.splitlines()]
    assert [[len(ways) for ways in each["masks"]] for each in found] == [[3], [3, 3]]
    assert found[0]["text"] == "the [MASK] sat" and 0 < found[0]["masks"][0][0]["probability"] <= 1


def test_a_masked_run_is_evaluated_like_any_other(headwise, run, tmp_path):
    report = json.loads(headwise("evaluate", run, "--json").out)
    assert [score["name"] for score in report["scores"]] == ["perplexity", "accuracy", "next sentence"]
    (tmp_path / "own.txt").write_text("the cat sat\nthe dog\n")
    own = headwise("evaluate", run, "--data", "own.txt")
    assert own.status == 0 and "masked words" in own.out


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("fill-mask", "the cat sat"), "there is no [MASK] in 'the cat sat'"),
        (("generate", "the cat"), "was trained to masked"),
        (("evaluate", "--show", "3"), "generates no outputs"),
        (("embed", "texts", "a", "--out", "a.txt"), "use .npy, .tsv, .json"),
        (("embed", "similar", "a"), "--file with the texts"),
    ],
)
def test_mistakes_are_one_sentence(headwise, run, arguments, complaint):
    command, *rest = arguments
    outcome = headwise(command, run, *rest)
    assert outcome.status == 2 and complaint in outcome.err and outcome.out == ""


def test_texts_have_vectors_in_three_kinds_of_file(headwise, run, tmp_path):
    (tmp_path / "texts").write_text("the cat sat\nthe dog sat on the rug\n")
    for name in ("a.npy", "a.tsv", "a.json"):
        assert headwise("embed", run, "texts", "--file", "texts", "--out", name).status == 0
    table = np.load(tmp_path / "a.npy")
    assert table.shape == (2, 32)
    lines = [line.split("\t") for line in (tmp_path / "a.tsv").read_text().splitlines()]
    assert [line[0] for line in lines] == ["the cat sat", "the dog sat on the rug"]
    objects = json.loads((tmp_path / "a.json").read_text())
    for row, line, each in zip(table, lines, objects, strict=True):
        np.testing.assert_allclose(row, np.array(line[1:], float), rtol=1e-5)
        np.testing.assert_allclose(row, each["vector"], rtol=1e-5)
    shown = headwise("embed", run, "texts", "the cat sat", "--json", "--normalised").out
    np.testing.assert_allclose(json.loads(shown)["vector"], table[0] / np.linalg.norm(table[0]), rtol=1e-4, atol=1e-6)


def test_similar_texts_come_first(headwise, run, tmp_path):
    (tmp_path / "texts").write_text("the dog sat on the rug\nmat\nthe cat sat on the mat\nthe the the\n")
    found = headwise(
        "embed", run, "similar", "the cat sat on the mat", "--file", "texts", "--count", 2
    ).out.splitlines()
    assert len(found) == 2 and found[0] == "1.000  the cat sat on the mat"
    first, second = json.loads(
        headwise("embed", run, "similar", "mat", "--file", "texts", "--count", 2, "--json", "--pool", "pooler").out
    )
    assert first["text"] == "mat" and first["cosine"] == pytest.approx(1, abs=1e-5) and second["cosine"] <= 1
