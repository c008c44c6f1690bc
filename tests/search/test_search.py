"""A search trains its trials as runs, records failures, prunes, continues where it stopped, and writes the winner."""

import json
import os
import signal
import subprocess
import sys
from time import monotonic, sleep

import optuna
import pytest

from headwise.cli.main import main
from headwise.compare.progress import Lines
from headwise.errors import UserError
from headwise.experiment.config import Experiment
from headwise.runs import Run
from headwise.search.plot import plot_search
from headwise.search.run import search
from headwise.search.space import parse_ranges
from headwise.search.study import drop_partial_line, lock_folder, make_sampler, open_study
from headwise.train.state import Metric

OVER = ["train.schedule.lr = choice(0.001, 1e30)", "model.dropout = uniform(0, 0.4)"]
LR, DROPOUT = "train.schedule.lr", "model.dropout"
LONGER = ["train.steps=200", "train.validate_every=25"]
NLL = Metric("nll", lower=True)


def run_search(file, runs, trials, **options):
    return search(file, OVER, trials, runs, jobs=1, show=Lines(), **options)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def first(file, runs):
    """One trial."""
    return run_search(file, runs, 1)


@pytest.fixture(scope="module")
def second(first, file, runs):
    """The same search with a trial that diverges."""
    open_study(runs / "small-search", NLL, prune=True).enqueue_trial({LR: "1e30", DROPOUT: 0.25})
    return run_search(file, runs, 2)


@pytest.fixture(scope="module")
def third(second, file, runs):
    """The same search after five trials that were better at every validation."""
    study = open_study(runs / "small-search", NLL, prune=True)
    distributions = study.trials[0].distributions
    for number in range(5):
        scores = dict.fromkeys((1, 2, 3), -9.0 - number)
        values = {LR: "0.001", DROPOUT: 0.01 * (number + 1)}
        study.add_trial(
            optuna.create_trial(
                value=-9.0 - number, params=values, distributions=distributions, intermediate_values=scores
            )
        )
    study.enqueue_trial({LR: "0.001", DROPOUT: 0.3})
    return run_search(file, runs, 8)


def test_the_first_trial_has_the_values_of_the_experiment(first, runs):
    (trial,) = first.trials
    assert (trial.state, dict(trial.values)) == ("complete", {LR: "0.001", DROPOUT: 0.1})
    run = Run.open(trial.run)
    assert trial.run == runs / "small-search" / "trial-0" and run.state["step"] == 12
    assert (first.score, first.lower, trial.score) == ("nll", True, run.state["best"]["value"])
    assert first.importances == {}  # too few trials


def test_the_winner_is_an_experiment_file(first):
    best = Experiment.read(first.best_file)
    assert best.name == "small-best" and best.model.dropout == 0.1 and best.train.schedule.lr == 0.001
    trained = Experiment.model_validate(Run.open(first.trials[0].run).config)
    assert best.model_copy(update={"name": "trial-0"}) == trained


def test_a_trial_that_diverges_is_recorded_and_does_not_stop_the_search(second, first):
    complete, failed = second.trials
    assert complete == first.trials[0]  # not trained again
    assert failed.state == "failed" and "lower" in failed.failure and failed.values[DROPOUT] == 0.25
    assert second.best == complete


def test_a_trial_worse_than_the_median_is_pruned(third):
    trial = third.trials[-1]
    assert (trial.number, trial.state, trial.values[DROPOUT]) == (7, "pruned", 0.3)
    assert Run.open(trial.run).state["step"] < 12 and trial.score > 0
    assert sum(third.importances.values()) == pytest.approx(1.0) and set(third.importances) == {LR, DROPOUT}
    assert [each.number for each in third.ranking] == [6, 5, 4, 3, 2, 0]


def test_the_command_prints_a_finished_search_at_once(third, file, runs, capsys, tmp_path):
    command = ["search", str(file), "--runs", str(runs), "--trials", "8", *(f"--over={each}" for each in OVER)]
    main([*command, "--json"])
    data = json.loads(capsys.readouterr().out)
    assert [trial["state"] for trial in data["trials"]] == ["complete", "failed", *["complete"] * 5, "pruned"]
    assert data["best"] == 6 and data["trials"][1]["failure"]
    main([*command, "--plot", str(tmp_path / "search.svg")])
    text = capsys.readouterr().out
    assert "trial-6 *" in text and "8 trials: 6 complete, 1 pruned, 1 failed; lower is better" in text
    assert "importance" in text and "trial-1 failed: " in text
    svg = (tmp_path / "search.svg").read_text()
    assert all(f"<!-- {part} -->" in svg for part in (LR, DROPOUT, "pruned", "best so far", "nll, lower is better"))
    assert "<b>trial-6 *</b>" in third._repr_html_()


def test_another_search_in_the_same_folder_is_refused(first, file, runs):
    with pytest.raises(UserError, match="its search has another set of ranges;"):
        search(file, ["model.dropout = uniform(0, 0.5)"], 1, runs)
    with pytest.raises(UserError, match="its search has another experiment;"):
        search(file, OVER, 1, runs, changes=["train.steps=13"])
    with lock_folder(runs / "small-search"), pytest.raises(UserError, match="another process searches here"):
        run_search(file, runs, 1)


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (["--over", "model.drpout = uniform(0, 0.4)"], "model.drpout: unknown key; did you mean dropout"),
        (["--over", "model.positions = choice(rotary, alibbi)"], "did you mean alibi"),
        (["--over", "model.dropout = uniform(0, 4)"], "model.dropout"),
        (["--over", "name = choice(a, b)"], "--over name: "),
        (["--over", "model.dropout = uniform(0, 0.4)", "--plot", "a.gif"], "'.gif'"),
        (["--over", "model.dropout = uniform(0, 0.4)", "--trials", "0"], "--trials 0"),
        ([], "nothing to search"),
    ],
)
def test_a_mistake_is_one_sentence_before_anything_starts(file, tmp_path, capsys, options, part):
    with pytest.raises(SystemExit) as left:
        main(["search", str(file), "--runs", str(tmp_path / "r"), *options])
    error = capsys.readouterr().err
    assert left.value.code == 2 and part in error and len(error.splitlines()) == 1
    assert not (tmp_path / "r").exists()


def heed_ctrl_c():
    """In a shell's background job SIGINT is ignored, and a child process inherits that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_ctrl_c_stops_cleanly_and_the_next_call_resumes_the_trial(file, tmp_path):
    folder = tmp_path / "small-search"
    command = [sys.executable, "-m", "headwise", "search", str(file), "--runs", str(tmp_path), "--trials", "1"]
    command += ["--jobs", "1", *(f"--set={each}" for each in LONGER), *(f"--over={each}" for each in OVER)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ, preexec_fn=heed_ctrl_c)
    deadline = monotonic() + 120
    while not (folder / "trial-0" / "last").exists() and process.poll() is None and monotonic() < deadline:
        sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130 and "give the same command again" in errors and "Traceback" not in errors
    stopped = Run.open(folder / "trial-0")
    step = stopped.state["step"]
    assert 0 < step < 200 and not stopped.busy
    with (folder / "journal.jsonl").open("a") as journal:
        journal.write('{"op_code": 5, "tri')  # a process that was killed while it wrote
    result = run_search(file, tmp_path, 1, changes=LONGER)
    assert [trial.state for trial in result.trials] == ["complete"] and stopped.state["step"] == 200
    assert [path.name for path in folder.glob("trial-*") if path.is_dir()] == ["trial-0"]


def test_a_continued_search_suggests_what_an_uninterrupted_one_does(tmp_path):
    ranges = parse_ranges(["x = uniform(0, 1)", "n = int(1, 9)", "c = choice(a, b)"])

    def suggest(study, count):
        for _ in range(count):
            study.sampler = make_sampler(3, len(study.trials), parallel=False)
            trial = study.ask()
            values = [each.suggest(trial) for each in ranges]
            study.tell(trial, values[0] + values[1])

    for name, calls in (("whole", [14]), ("parts", [1, 6, 7])):
        (tmp_path / name).mkdir()
        for count in calls:
            suggest(open_study(tmp_path / name, NLL, prune=True), count)
    whole, parts = (open_study(tmp_path / name, NLL, prune=True).trials for name in ("whole", "parts"))
    assert [trial.params for trial in whole] == [trial.params for trial in parts]
    assert len({trial.params["x"] for trial in whole}) == 14


def test_only_an_incomplete_last_line_of_the_journal_is_dropped(tmp_path):
    journal = tmp_path / "journal.jsonl"
    drop_partial_line(journal)
    journal.write_text('{"a": 1}\n{"b"')
    drop_partial_line(journal)
    assert journal.read_text() == '{"a": 1}\n'
    drop_partial_line(journal)
    assert journal.read_text() == '{"a": 1}\n'


def test_a_search_without_a_score_is_not_drawn(first, tmp_path):
    from dataclasses import replace

    with pytest.raises(UserError, match="no trial has a score"):
        plot_search(replace(first, trials=()), tmp_path / "a.svg")
