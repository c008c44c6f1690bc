"""A real ladder through the command line, and what it says to those who mistake it."""

import json
from math import log10
from pathlib import Path

import pytest

from headwise.cli.main import main
from headwise.compare.cell import build_cells
from headwise.compare.worker import run_cell
from headwise.scaling.config import ScalingConfig
from headwise.scaling.render import build_notes, print_text
from headwise.scaling.run import count_by_size, run_scaling
from headwise.scaling.values import Scaling

SHIPPED = Path(__file__).parents[2] / "experiments" / "scaling"


@pytest.fixture
def climb(ladder, climbed, capsys):
    """Run the command on the ladder; returns what it printed."""

    def run(*options, runs=climbed):
        main(["scaling", str(ladder), "--runs", str(runs), *map(str, options)])
        return capsys.readouterr().out

    return run


@pytest.fixture
def output(climb):
    """With the last run trained, by the command itself."""
    return json.loads(climb("--format", "json"))


def stamps(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


def test_the_whole_ladder_is_trained_and_fitted(output):
    assert len(output["rungs"]) == 9 and all(len(rung["losses"]) == 1 for rung in output["rungs"])
    counts = sorted({rung["N"] for rung in output["rungs"]})
    # matrices; biases of 9 width and norms of 4 width in each layer; the last norm
    assert counts == [12 * d * w * w + 13 * d * w + 2 * w for w, d in ((8, 1), (16, 1), (32, 2))]
    assert sorted({rung["D"] for rung in output["rungs"]}) == [1024, 2048, 4096], "whole batches"
    laws = output["laws"]
    assert laws["N"]["x"] == counts and laws["D"]["published"] == 0.095
    for name in "ND":
        exponent = laws[name]["fits"]["power law"]["exponent"]
        assert 0 < exponent["value"] < 2 and exponent["low"] is None
    assert laws["N"]["loss"][0] > laws["N"]["loss"][-1] > 0
    assert "decades of N" in output["notes"][0] and "do not extrapolate" in output["notes"][0]
    assert "no intervals: they need more than one seed" in output["notes"]


def test_a_second_call_costs_nothing(output, climb, climbed):
    before = stamps(climbed)
    assert json.loads(climb("--format", "json")) == output and stamps(climbed) == before
    assert climb("--dry-run").endswith("9 runs, 1.25G FLOPs, 0 of them to do\n")


def test_text_and_markdown_hold_the_same_cells_and_the_caveat(output, climb):
    text, page = climb(), climb("--format", "markdown")
    for part in ("Three sizes", "L(N)", "power law", "Kaplan et al. 2020", "0.076", "0.095", "decades of C"):
        assert part in text and part in page
    assert len({line.count("|") for line in page.splitlines() if line.startswith("|")}) == 1


def test_the_plot_has_laws_and_caveat(output, climb, tmp_path):
    climb("--plot", tmp_path / "laws.svg")
    svg = (tmp_path / "laws.svg").read_text()
    assert "<!-- Three sizes -->" in svg and "<!-- N, parameters without tables -->" in svg
    assert "do not extrapolate" in svg and "power law: 0." in svg


def test_dry_run_lists_n_d_and_c_before_anything_is_trained(climb, tmp_path):
    out = climb("--seeds", 7, "--dry-run", runs=tmp_path)
    assert "w8-1000-7   N 888  D 1,000  C 5.33M  to train" in out and not list(tmp_path.iterdir())


def test_of_several_rates_the_best_one_counts(ladder, tmp_path):
    config = ScalingConfig.read(ladder).replace(tokens=(), rates=(1e-6, 0.02), budget={"steps": 3})
    for cell in build_cells(config.comparison, tmp_path):
        run_cell(cell, lambda message: None)
    result = run_scaling(config, tmp_path)
    assert [(rung.size, rung.rate, rung.data) for rung in result.rungs] == [(f"w{w}", 0.02, 768) for w in (8, 16, 32)]
    assert "L(D) is not fitted: it needs 3 points, there is 1" in build_notes(result)
    assert "best learning rates: w8 0.02, w16 0.02, w32 0.02" in build_notes(result)


def test_where_all_runs_failed_the_table_says_why(capsys):
    print_text(Scaling("empty", [], {}, {"w8, seed 1": "no such file"}))
    assert "w8, seed 1 failed: no such file" in capsys.readouterr().out


@pytest.mark.parametrize("file", sorted(SHIPPED.glob("*.toml")), ids=lambda file: file.stem)
def test_shipped_ladders_are_valid_and_wide_enough(file):
    counts = sorted(count_by_size(ScalingConfig.read(file)).values())
    assert len(counts) >= 6 and log10(counts[-1] / counts[0]) >= 1.5


MISTAKES = [
    ("tokens =", "tokns =", "small.toml: tokns: unknown key; did you mean tokens?"),
    ("tokens = [1000, 2000, 4000]", "tokens = [2000]\nbudget = { steps = 5 }", "budget: the tokens of the ladder are"),
    ('kind = "language-model", context = 16', 'kind = "transduce"', "small: task: a ladder is one of language models"),
    ('"model.width" = 16', '"model.width" = 8', "sizes 'w8' and 'w16' both have 888 parameters; change one of them"),
    ('name = "w16"', 'name = "w8"', "small: arm.3.name: two arms are called 'w8-1000'; choose another name"),
    ('"model.width" = 16', '"model.widht" = 16', "model.widht: unknown key; did you mean width?"),
]


@pytest.mark.parametrize(("right", "wrong", "sentence"), MISTAKES)
def test_a_mistake_is_one_sentence_and_nothing_is_written(ladder, tmp_path, capsys, right, wrong, sentence):
    path = tmp_path / "small.toml"
    path.write_text(ladder.read_text().replace(right, wrong))
    assert path.read_text() != ladder.read_text()
    assert sentence in refused(capsys, path, "--runs", tmp_path / "runs") and not (tmp_path / "runs").exists()


def test_one_rung_or_no_file_is_refused(ladder, tmp_path, capsys):
    path = tmp_path / "one.toml"
    path.write_text(ladder.read_text().split('[[size]]\nname = "w16"')[0])
    assert "one.toml: size: a law needs at least 3 sizes, there is 1; add [[size]] tables" in refused(capsys, path)
    assert "nowhere.toml: there is no such file" in refused(capsys, tmp_path / "nowhere.toml")
    assert "the file ends in '.gif'" in refused(capsys, ladder, "--plot", "laws.gif")


def refused(capsys, *arguments) -> str:
    """The one line on stderr with which a call ends."""
    with pytest.raises(SystemExit) as left:
        main(["scaling", *map(str, arguments)])
    shown = capsys.readouterr()
    assert left.value.code == 2 and not shown.out and len(shown.err.splitlines()) == 1
    return shown.err
