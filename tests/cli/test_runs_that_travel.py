"""Runs used from other folders, moved, trained longer, archived: from the command line."""

import json
import shutil
import tomllib
from pathlib import Path

import pytest

from headwise.runs import Run


@pytest.fixture
def project(headwise, experiment_file, tmp_path) -> Path:
    """A project with `data/pairs.tsv`, `reverse.toml` that names it so, and the run `runs/reverse` of eight steps."""
    experiment = experiment_file(steps=8)
    (tmp_path / "data").mkdir()
    (tmp_path / "pairs.tsv").rename(tmp_path / "data" / "pairs.tsv")
    experiment.write_text(experiment.read_text().replace(str(tmp_path / "pairs.tsv"), "data/pairs.tsv"))
    assert headwise("train", experiment, "--set", "data.test_fraction=0.05").status == 0
    return tmp_path


def read_train(run: Path) -> dict:
    return tomllib.loads((run / "config.toml").read_text())["train"]


def test_a_run_works_from_any_folder_and_after_it_was_moved(headwise, project, monkeypatch, tmp_path_factory, caplog):
    first = headwise("evaluate", "runs/reverse", "--json")
    scores = json.loads(first.out)["scores"]
    other = tmp_path_factory.mktemp("other")
    monkeypatch.chdir(other)
    run = project / "runs" / "reverse"
    assert tomllib.loads((run / "config.toml").read_text())["data"]["train"] == ["data/pairs.tsv"]  # as written
    assert json.loads(headwise("evaluate", run, "--json").out)["scores"] == scores
    assert headwise("train", "--resume", run).status == 0

    shutil.move(run, other / "reverse")  # alone: the data stay where they were
    assert json.loads(headwise("evaluate", "reverse", "--json").out)["scores"] == scores
    shutil.move(project / "data" / "pairs.tsv", other / "pairs.tsv")  # beside the run
    done = headwise("evaluate", other / "reverse", "--json")
    assert json.loads(done.out)["scores"] == scores and not caplog.records
    shutil.move(other / "pairs.tsv", project / "elsewhere.tsv")
    lost = headwise("evaluate", "reverse")
    assert lost.status == 2 and "data/pairs.tsv" in lost.err and "--data-root" in lost.err
    assert headwise("translate", "reverse", "abc").status == 0  # use needs no data
    (project / "deep").mkdir()
    shutil.move(project / "elsewhere.tsv", project / "deep" / "pairs.tsv")
    done = headwise("evaluate", "reverse", "--data-root", project / "deep", "--json")
    assert json.loads(done.out)["scores"] == scores


def test_a_changed_corpus_is_noticed(headwise, project, caplog):
    with open(project / "data" / "pairs.tsv", "a") as file:
        file.write("abcabc\tC B A C B A\n")
    done = headwise("evaluate", "runs/reverse")
    assert done.status == 0 and "data/pairs.tsv has changed" in caplog.text
    refused = headwise("train", "--resume", "runs/reverse", "--steps", "2")
    assert refused.status == 2 and "since this run was trained" in refused.err and "--changed-data" in refused.err
    assert read_train(project / "runs/reverse")["steps"] == 8  # nothing was written
    accepted = headwise("train", "--resume", "runs/reverse", "--steps", "2", "--changed-data")
    assert accepted.status == 0 and "after 10 steps" in accepted.err
    assert headwise("train", "--resume", "runs/reverse").status == 0  # they are the run's data now
    caplog.clear()
    assert headwise("evaluate", "runs/reverse").status == 0 and not caplog.records


def test_a_finished_run_is_trained_longer_and_longer(headwise, project):
    run = project / "runs" / "reverse"
    first = headwise("train", "--resume", run, "--steps", "5")
    assert "after 13 steps" in first.err and "warm restart of the cosine schedule" in first.err
    assert "rises to 0.006" in first.err
    assert (read_train(run)["steps"], read_train(run)["restart"]["step"]) == (13, 8)
    assert "after 13 steps" in headwise("train", "--resume", run).err
    second = headwise("train", "--resume", run, "--epochs", "1")
    state = Run.open(run).state
    assert second.status == 0 and "stopped (epochs)" in second.err and state["index"] == 0
    assert (read_train(run)["steps"], read_train(run)["restart"]["step"]) == (0, 13)
    third = headwise("train", "--resume", run, "--minutes", "0.01")
    assert "stopped (minutes)" in third.err
    assert read_train(run)["minutes"] == pytest.approx(state["minutes"] + 0.01)
    assert Run.open(run).state["step"] > state["step"]
    rows = Run.open(run).metrics.rows()
    assert [row["step"] for row in rows] == sorted(row["step"] for row in rows)


def test_budgets_of_a_run_that_is_trained_longer_are_checked(headwise, project):
    for options, sentence in [
        (["--resume", "runs/reverse", "--steps", "-1"], "a budget is positive"),
        (["reverse.toml", "--steps", "5"], "--set train.steps=1000"),
        (["reverse.toml", "--changed-data"], "go with --resume"),
    ]:
        done = headwise("train", *options)
        assert done.status == 2 and sentence in done.err


def test_a_run_travels_in_a_zip_with_its_data(headwise, project, monkeypatch, tmp_path_factory, caplog):
    scores = json.loads(headwise("evaluate", "runs/reverse", "--json").out)["scores"]
    assert headwise("runs", "archive", "runs/reverse", "reverse.zip", "--data").out == "reverse.zip\n"
    other = tmp_path_factory.mktemp("machine")
    shutil.move(project / "reverse.zip", other)
    shutil.rmtree(project / "runs")
    shutil.rmtree(project / "data")
    monkeypatch.chdir(other)
    assert headwise("runs", "unpack", "reverse.zip").out == "runs/reverse\n"
    done = headwise("evaluate", "runs/reverse", "--json")
    assert json.loads(done.out)["scores"] == scores and not caplog.records
    assert "after 10 steps" in headwise("train", "--resume", "runs/reverse", "--steps", "2").err
    assert headwise("runs", "copy", "runs/reverse", "runs/second").out == "runs/second\n"
    assert "second" in headwise("runs").out
    refused = headwise("runs", "remove", "runs/second")
    assert refused.status == 2 and "--yes" in refused.err and (other / "runs/second").exists()
    assert headwise("runs", "remove", "runs/second", "--yes").status == 0
    assert [path.name for path in (other / "runs").iterdir()] == ["reverse"]
    assert headwise("runs", "remove", "runs", "--yes").status == 2  # a folder of runs


@pytest.mark.parametrize("command", ["copy", "archive", "unpack", "remove"])
def test_commands_of_runs_have_examples(headwise, command):
    assert f"headwise runs {command} " in headwise("runs", command, "--help").out.split("For example:")[1]


def test_a_model_that_is_fitted_in_one_pass_cannot_be_trained_longer(headwise, tmp_path):
    (tmp_path / "book.txt").write_text("a rose is a rose is a rose. " * 200)
    (tmp_path / "rose.toml").write_text(
        'task = "language-model"\nmodel = "ngram"\n[data]\ntrain = "book.txt"\nformat = "text"\n[train]\nepochs = 1\n'
    )
    assert headwise("train", "rose.toml").status == 0
    refused = headwise("train", "--resume", "runs/rose", "--minutes", "1")
    assert refused.status == 2 and "fitted in one pass and cannot be trained longer" in refused.err
    assert read_train(tmp_path / "runs/rose")["minutes"] == 0
