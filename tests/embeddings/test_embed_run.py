"""Vectors from a text file to a run, to questions, and into another model."""

import json
from pathlib import Path

import numpy as np
import pytest

import headwise
from headwise.cli.main import main
from headwise.errors import UserError
from headwise.experiment.config import Experiment
from headwise.experiment.load import load_vectors
from headwise.experiment.run import train_experiment

COLOURS = ["red", "green", "blue", "black", "white", "grey"]
NUMBERS = ["one", "two", "three", "four", "five", "six"]


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """Lines about colours and lines about numbers."""
    folder = tmp_path_factory.mktemp("embed")
    random = np.random.default_rng(0)
    lines = [" ".join(random.choice(NUMBERS if line % 2 else COLOURS, 8)) + f" end{line}" for line in range(800)]
    (folder / "text.txt").write_text("\n".join(lines) + "\n")
    experiment = Experiment.model_validate(
        {
            "name": "words",
            "task": "embed",
            "data": {"train": str(folder / "text.txt"), "format": "lines", "cache": str(folder / "cache")},
            "tokeniser": {"kind": "words", "min_count": 2},
            "model": {"kind": "skipgram", "width": 8, "subsample": 0.0, "epochs": 10},
            "train": {"epochs": 1, "threads": 1},
        }
    )
    return train_experiment(experiment, folder)[0].path


def test_a_run_is_loaded_and_scored(run):
    loaded = headwise.load(run)
    accuracy, rank = loaded.evaluate().scores
    assert accuracy.low > 65
    assert rank.value == pytest.approx(1 + 99 * (1 - accuracy.value / 100))


def test_questions_on_the_command_line(run, capsys):
    main(["embed", str(run), "nearest", "red", "--count", "5", "--json"])
    result = json.loads(capsys.readouterr().out)
    assert {row["word"] for row in result} == set(COLOURS) - {"red"}
    main(["embed", str(run), "analogy", "red", "one", "two", "--count", "1"])
    assert capsys.readouterr().out.split()[1] in COLOURS


def test_export_gives_a_file_that_answers_alike(run, tmp_path, capsys):
    main(["embed", str(run), "export", str(tmp_path / "vectors.txt")])
    assert capsys.readouterr().out.strip() == str(tmp_path / "vectors.txt")
    ours, theirs = load_vectors(run), load_vectors(tmp_path / "vectors.txt")
    assert list(ours.words) == list(theirs.words)
    assert ours.nearest("one") == theirs.nearest("one")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("nearest",), "takes a word"),
        (("analogy", "red"), "takes three words"),
        (("nearest", "rad"), "no word 'rad'; did you mean red"),
    ],
)
def test_mistakes_are_one_sentence(run, capsys, arguments, complaint):
    with pytest.raises(SystemExit) as leave:
        main(["embed", str(run), *arguments])
    assert leave.value.code == 2
    assert complaint in capsys.readouterr().err


def test_a_model_begins_with_the_vectors_of_a_run_and_a_missing_file_makes_no_run(run):
    folder = run.parent

    def learn(name, vectors):
        experiment = Experiment.model_validate(
            {
                "name": name,
                "task": {"kind": "language-model", "context": 8},
                "data": {"train": str(folder / "text.txt"), "format": "lines", "cache": str(folder / "cache")},
                "tokeniser": {"kind": "words", "min_count": 2},
                "model": {"kind": "gpt2", "width": 8, "heads": 2, "depth": 1, "embeddings": str(vectors)},
                "train": {"steps": 1, "threads": 1, "schedule": {"kind": "constant", "lr": 1e-9}},
            }
        )
        return headwise.load(train_experiment(experiment, folder)[0].path)

    known, learnt = load_vectors(run), learn("begun", run)
    words = learnt.tokenisers.target
    (place,) = words.encode("green")
    table = learnt.model.decoder.embed.table.weight.detach()
    assert np.allclose(table[place], known.table[known.words.index("green")], atol=1e-6)
    with pytest.raises(UserError, match=r"gone\.txt"):
        learn("lost", folder / "gone.txt")
    assert not (folder / "lost").exists()
