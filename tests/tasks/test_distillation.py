"""Distillation: what a teacher says counts in a student's loss, and nothing of it stays in the student's run."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import headwise
from headwise import UserError
from headwise.cli.main import main
from headwise.experiment.config import parse_experiment
from headwise.experiment.run import load_teacher, train_experiment
from headwise.runs import Run
from headwise.runs.checkpoint import load_weights
from headwise.tasks.distillation import Distillation, Teacher
from headwise.text.tokenisers import Tokenisers
from headwise.text.vocabulary import Labels

TRAIN = {"steps": 2, "batch_size": 8, "threads": 1, "device": "cpu", "log_every": 1}
STUDENT = {"kind": "deit-tiny", "patch": 2, "width": 16, "depth": 1, "drop_path": 0.0}
LOGITS = torch.tensor([[2.0, 0.5, -1.0], [0.0, 0.3, 0.1]])
SAID = torch.tensor([[0.1, 3.0, 0.2], [1.0, -1.0, 0.5]])
LOSSES = [torch.tensor([0.7, 0.9]), torch.tensor([5.0, 5.0])]  # of the labels; the second head's is not to count


def made(kind: str, temperature: float = 3.0, share: float = 0.0) -> Tensor:
    lesson = Distillation(lambda images: SAID, kind, temperature, share)
    return lesson((torch.zeros(2, 3), LOGITS), LOSSES, torch.empty(2, 1, 4, 4))


def test_hard_is_half_the_label_and_half_the_teachers() -> None:
    assert torch.allclose(made("hard"), 0.5 * LOSSES[0] - 0.5 * LOGITS.log_softmax(-1)[[0, 1], [1, 0]])


def test_soft_is_the_divergence_at_a_temperature() -> None:
    p, q = (SAID / 2).softmax(-1), (LOGITS / 2).softmax(-1)
    expected = 0.7 * LOSSES[0] + 0.3 * 4 * (p * (p / q).log()).sum(-1)
    torch.testing.assert_close(made("soft", temperature=2.0, share=0.3), expected)
    assert torch.allclose(made("soft"), made("soft", 3.0, 0.1))


def test_softer_targets_pull_as_hard_at_any_temperature() -> None:
    """t^2 makes up for gradients that fall by 1/t^2: for large t they are those of half a squared distance."""
    logits = torch.zeros(1, 3, requires_grad=True)
    said = torch.tensor([[0.02, -0.01, -0.01]])
    loss = Distillation(lambda images: said, "soft", 50.0, 0.5)([logits], [torch.zeros(1)], torch.empty(1, 1, 2, 2))
    (pull,) = torch.autograd.grad(loss.sum(), logits)
    torch.testing.assert_close(pull, -said / 6, atol=1e-5, rtol=0)


def experiment(folder: Path, data: dict[str, Any] | None = None, **tables: Any) -> Any:
    own = {"name": "digits", "max_images": 64, "valid_size": 8, "cache": str(folder / "cache"), **(data or {})}
    return parse_experiment({"task": "classify-images", "data": own, "model": STUDENT, "train": TRAIN, **tables})


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a teacher that has batch norms: it would not be what it was if it stayed in training mode."""
    folder = tmp_path_factory.mktemp("teacher")
    train_experiment(experiment(folder, name="cnn", model={"kind": "cnn-tiny"}), folder / "runs")
    return folder


def distilled(place: Path, **settings: Any) -> dict[str, Any]:
    return {"kind": "classify-images", "teacher": str(place / "runs" / "cnn"), **settings}


@pytest.mark.parametrize(("kind", "model"), [("hard", STUDENT), ("soft", {**STUDENT, "class_tokens": 1})])
def test_a_student_learns_from_a_run_and_needs_it_no_more(kind: str, model: Any, place: Path, tmp_path: Path) -> None:
    shutil.copytree(place / "runs" / "cnn", tmp_path / "cnn")
    task = distilled(place, teacher=str(tmp_path / "cnn"), distillation=kind, augment=[{"kind": "mix"}])
    before = load_weights(Run.open(tmp_path / "cnn"), "best")
    run, _ = train_experiment(experiment(place, name="student", task=task, model=model), tmp_path / "runs")
    after = load_weights(Run.open(tmp_path / "cnn"), "best")
    assert all(torch.equal(before[name], after[name]) for name in before)
    shutil.rmtree(tmp_path / "cnn")
    student = headwise.load(run.path)
    assert load_weights(run, "best").keys() == student.model.state_dict().keys()
    assert len(student.model.heads) == (2 if kind == "hard" else 1)
    assert 0 <= student.evaluate().scores[0].value <= 100
    assert student.task.distillation is None


def test_the_teacher_is_asked_in_its_own_scale_size_and_order(place: Path) -> None:
    loaded = headwise.load(place / "runs" / "cnn")
    classes = list(reversed(loaded.task.classes))
    task = loaded.task
    teacher = Teacher(headwise.load(place / "runs" / "cnn").model, task.pixels, task.classes, classes, 1)
    images = torch.rand(3, 1, 8, 8)
    expected = loaded.model(loaded.tokenisers.source.normalise_images(images)).flip(1)
    torch.testing.assert_close(teacher(images), expected)
    assert torch.equal(teacher(images), teacher(images)) and not teacher(images.requires_grad_()).requires_grad
    larger = F.interpolate(images, (16, 16), mode="nearest")
    torch.testing.assert_close(teacher(larger), teacher(F.interpolate(larger, (8, 8), mode="bicubic", antialias=True)))


def test_each_head_learns_its_own_lesson(place: Path) -> None:
    """With nearly all of the loss the teacher's, the head of the class token has hardly any gradient."""
    made = experiment(place, task=distilled(place, distillation_weight=0.999))
    old = headwise.load(place / "runs" / "cnn")
    task = made.create_task(old.tokenisers)
    load_teacher(task)
    model = task.build(made.model)
    batch = task.build_batches(old.task.load_test_pairs(made.data), 0, made.train).batch(np.arange(8))
    task.loss(model, batch, task.init_state(model)).total.backward()
    first, second = (head.head.weight.grad.norm().item() for head in model.heads)
    assert first < 0.01 * second


@pytest.fixture(scope="module")
def strangers(place: Path) -> Path:
    """What cannot teach digits: a folder that is no run, a run that writes, one that knows other classes."""
    (place / "empty").mkdir()
    (place / "text.txt").write_text("one two three\n" * 8)
    data = {"format": "text", "train": str(place / "text.txt"), "valid": str(place / "text.txt")}
    tables = {"task": "language-model", "model": {"kind": "ngram", "order": 2}, "train": {"epochs": 1}, "data": data}
    train_experiment(parse_experiment({**tables, "name": "writer"}), place)
    cnn = headwise.load(place / "runs" / "cnn")
    replace(cnn, tokenisers=Tokenisers(cnn.tokenisers.source, Labels("abcdefghij"))).save(place / "letters")
    return place


@pytest.mark.parametrize(
    ("teacher", "sentence"),
    [
        ("missing", "missing: there is no such folder; name a run"),
        ("empty", "empty"),
        ("writer", "this run was trained to language-model, not to classify-images; name another run"),
        ("letters", "do not share the classes 0, 1"),
    ],
)
def test_a_teacher_that_does_not_fit_is_told_before_there_is_a_run(
    teacher: str, sentence: str, strangers: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = experiment(strangers, name="student", task=distilled(strangers, teacher=str(strangers / teacher)))
    (tmp_path / "student.toml").write_text(made.to_toml())
    with pytest.raises(SystemExit) as end:
        main(["train", str(tmp_path / "student.toml"), "--runs", str(tmp_path / "runs")])
    told = capsys.readouterr().err.splitlines()
    assert end.value.code == 2
    assert len(told) == 1 and told[0].startswith("headwise: task.teacher: ") and sentence in told[0]
    assert not (tmp_path / "runs").exists()


def test_a_teacher_that_does_not_fit(place: Path) -> None:
    cnn = headwise.load(place / "runs" / "cnn")
    with pytest.raises(UserError, match="do not share the classes 9, cat; name another run"):
        Teacher(cnn.model, cnn.task.pixels, cnn.task.classes, [*"012345678", "cat"], 1)
    with pytest.raises(UserError, match=r"reads images of 1 channels; set data\.channels = 1"):
        Teacher(cnn.model, cnn.task.pixels, cnn.task.classes, list("0123456789"), 3)
