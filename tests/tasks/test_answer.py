"""Answers as spans, and numbers for pairs of texts: from files to scores."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import headwise
from headwise import UserError
from headwise.evaluate.answers import exact_match, word_f1
from headwise.experiment.config import parse_experiment
from headwise.experiment.run import train_experiment
from headwise.tasks.answer import best_spans, find_spans
from headwise.tasks.regress import parse_number

NAMES = ("anna", "ben", "carl", "dora", "emil")
PLACES = ("paris", "rome", "oslo", "bern")


def questions() -> str:
    """Who lives where: the answer is the word after the name."""
    lines = []
    for one in NAMES:
        for other in NAMES:
            for place, rest in ((a, b) for a in PLACES for b in PLACES if a != b):
                if one != other:
                    lines.append(f"where is {one}\t{one} in {place} , {other} in {rest}\t{place}")
                    lines.append(f"where is {other}\t{one} in {place} , {other} in {rest}\t{rest}")
    return "question\ttext\tanswer\n" + "\n".join(lines) + "\n"


def test_a_span_is_found_in_the_second_text_alone() -> None:
    source = torch.tensor([[7, 8, 2, 6, 7, 8, 2], [7, 8, 2, 6, 6, 6, 2]])
    assert find_spans(source, torch.tensor([[7, 8, 2], [7, 8, 2]])).tolist() == [[4, 5], [-1, -1]]


def test_the_best_span_goes_forward_and_is_short() -> None:
    logits = torch.zeros(1, 5, 2)
    logits[0, 3, 0], logits[0, 1, 1], logits[0, 4, 1], logits[0, 0, 0] = 5.0, 9.0, 3.0, 4.0
    assert best_spans(logits, max_length=5).tolist() == [[0, 1]]  # the larger sum of (3, 1) would go backwards
    logits[0, 1, 1] = 0.0
    assert best_spans(logits, max_length=5).tolist() == [[3, 4]] and best_spans(logits, max_length=1).tolist() == [
        [3, 3]
    ]


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
def test_the_loss_smooths_labels_over_possible_places_alone(label_smoothing: float) -> None:
    """Equal to the cross entropy of each text without the places that cannot hold its answer."""
    torch.manual_seed(0)
    model = headwise.build("bert-tiny", vocab=12, task="answer").eval()
    source = torch.tensor([[7, 8, 2, 6, 7, 8, 2], [7, 2, 6, 5, 4, 2, 0], [7, 8, 2, 6, 6, 6, 2]])
    labels, text = torch.tensor([[4, 5], [2, 2], [-1, -1]]), [slice(3, 6), slice(2, 5)]
    loss = model(source, labels=labels, label_smoothing=label_smoothing)
    logits, cross_entropy = model(source), torch.nn.functional.cross_entropy
    expected = [
        cross_entropy(logits[row, part, end], labels[row, end] - part.start, label_smoothing=label_smoothing)
        for row, part in enumerate(text)
        for end in (0, 1)
    ]
    assert loss.total.item() == pytest.approx(sum(expected).item(), rel=1e-5) and loss.count == 4


@torch.no_grad()
def test_only_places_in_the_second_text_are_possible() -> None:
    """Not the question, nor an end mark, nor padding; a text that stands alone may have it anywhere."""
    model = headwise.build("bert-tiny", vocab=12, task="answer").eval()
    logits = model(torch.tensor([[7, 8, 2, 6, 7, 8, 2, 0], [5, 2, 9, 9, 9, 9, 9, 2], [6, 7, 8, 9, 6, 7, 8, 2]]))
    possible = (logits > torch.finfo(logits.dtype).min).all(-1)
    assert possible.nonzero().tolist() == [[0, place] for place in (3, 4, 5)] + [
        [1, place] for place in (2, 3, 4, 5, 6)
    ] + [[2, place] for place in range(8)]


def test_answers_are_compared_as_squad_does() -> None:
    assert exact_match(["The Cat!"], [["cat"]]).value == 100
    assert word_f1(["red cat"], [["the red dog", "x"]], resamples=0).value == pytest.approx(50)
    assert word_f1([""], [["dog"]], resamples=0).value == 0


def test_a_reader_learns_where_people_live(tmp_path: Path) -> None:
    file = tmp_path / "where.tsv"
    file.write_text(questions())
    experiment = parse_experiment(
        {
            "task": "answer",
            "data": {
                "train": str(file),
                "columns": ["question", "text", "answer"],
                "cache": str(tmp_path / "cache"),
                "test_fraction": 0.1,
            },
            "tokeniser": "words",
            "model": {"kind": "transformer-tiny", "wiring": "pre", "positions": "shaw", "dropout": 0.0},
            "train": {
                "steps": 300,  # after 150 two seeds of four are not there yet
                "batch_size": 32,
                "validate_every": 1000,
                "schedule": {"kind": "cosine", "lr": 0.005, "warmup": 20},
            },
        }
    )
    run, _ = train_experiment(experiment, tmp_path)
    loaded = headwise.load(run.path)
    found = {score.name: score.value for score in loaded.evaluate().scores}
    assert found["exact match"] > 90, found
    assert loaded.answer([("where is ben", "anna in oslo , ben in rome")]) == ["rome"]
    with pytest.raises(UserError, match="text 1: there is no tab between question and text"):
        loaded.task.predict_answers(loaded.model, ["where is ben"])


def test_a_regression_learns_how_much_more_the_first_text_praises(tmp_path: Path) -> None:
    worth = {"good": 1.0, "fine": 0.5, "so-so": 0.0, "poor": -0.5, "bad": -1.0}
    rows = [(f"{a} {b}", f"{c} {d}") for a in worth for b in worth for c in worth for d in worth]
    sums = [[sum(worth[word] for word in text.split()) for text in row] for row in rows]
    lines = [f"{one}\t{two}\t{a - b:.1f}" for (one, two), (a, b) in zip(rows, sums, strict=True)]
    file = tmp_path / "praise.tsv"
    file.write_text("one\ttwo\tscore\n" + "\n".join(lines) + "\n")
    experiment = parse_experiment(
        {
            "task": "regress",
            "data": {"train": str(file), "columns": ["one", "two", "score"], "cache": str(tmp_path / "cache")},
            "tokeniser": "words",
            "model": {"kind": "bert-tiny", "dropout": 0.0, "wiring": "pre"},
            "train": {"steps": 200, "batch_size": 32, "schedule": {"kind": "cosine", "lr": 0.01, "warmup": 10}},
        }
    )
    run, _ = train_experiment(experiment, tmp_path)
    found = {score.name: score.value for score in headwise.load(run.path).evaluate().scores}
    assert found["Pearson"] > 90 and found["Spearman"] > 90, found


def test_a_label_that_is_no_number_is_refused() -> None:
    with pytest.raises(UserError, match="the label 'many' is not a number"):
        parse_number("many")
    with pytest.raises(UserError, match="the label 'nan' is not a number"):
        parse_number("nan")
