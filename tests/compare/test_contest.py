"""Verdicts of contests, and the layout with a row for each table."""

from __future__ import annotations

import json
from dataclasses import replace
from math import exp, log

import numpy as np
import pytest

from headwise.compare.by_table import build_rows, check_printed
from headwise.compare.config import AnalysisConfig, ByTable, Suite
from headwise.compare.contest import decide_contest, describe_contest
from headwise.compare.values import Arm, Comparison, Outcome
from headwise.evaluate.score import Score


def make_comparison(tmp_path, values, margin=0.03, **settings):
    """`values`: arm -> seed -> times of the items."""
    arms = {}
    for name, seeds in values.items():
        outcomes = {}
        for seed, times in enumerate(seeds, 1):
            file = tmp_path / f"{name}-{seed}.json"
            outputs = ["out of memory" if time is None else str(time) for time in times]
            file.write_text(json.dumps({"sources": [f"g{n}" for n in range(len(times))], "outputs": outputs}))
            known = [time for time in times if time is not None]
            mean = exp(sum(map(log, known)) / len(known)) if known else None
            scores = {"runtime": Score("runtime", mean, mean, mean)} if known else {}
            outcomes[seed] = Outcome(scores, None, None, None, 0.5, tmp_path, file)
        arms[name] = Arm(name, outcomes)
    analysis = AnalysisConfig(claim="learning wins", contest="GO", margin=margin, **settings)
    return Comparison("table", arms, score="runtime", lower=True, analysis=analysis)


def test_the_gain_is_over_the_best_other_arm(tmp_path):
    times = np.linspace(1, 2, 12)
    values = {"GO": [times * 0.9, times * 0.91], "bad": [times * 3] * 2, "good": [times] * 2}
    contest = decide_contest(make_comparison(tmp_path, values))
    assert contest.rival == "good" and contest.items == 12 and contest.seeds == 2
    assert contest.gain == pytest.approx(1 - (0.9 * 0.91) ** 0.5)
    half = 12.706 * abs(log(0.91 / 0.9)) / 2  # t of one degree of freedom; items do not vary
    assert (contest.low, contest.high) == pytest.approx(
        (1 - (0.9 * 0.91) ** 0.5 * exp(half), 1 - (0.9 * 0.91) ** 0.5 * exp(-half)), rel=1e-3
    )


@pytest.mark.parametrize(("ratio", "verdict"), [(0.9, "holds here"), (0.99, "fails here"), (1.1, "fails here")])
def test_verdicts(tmp_path, ratio, verdict):
    times = np.linspace(1, 2, 12)
    noise = np.random.default_rng(0).normal(1, 0.001, (3, 12))
    comparison = make_comparison(tmp_path, {"GO": times * ratio * noise, "HEFT": [times] * 3, "metis": [times * 2] * 3})
    (line,) = describe_contest(comparison)
    assert line.startswith(f'"learning wins" {verdict}: runtime of GO ') and "HEFT" in line


def test_noise_leaves_it_undecided_and_an_optimum_is_no_rival(tmp_path):
    times = np.linspace(1, 2, 12)
    noise = np.random.default_rng(0).normal(0.97, 0.2, (3, 12))
    values = {"GO": times * noise, "HEFT": [times] * 3, "optimum": [times * 0.5] * 3}
    comparison = make_comparison(tmp_path, values, not_in_contest=("optimum",))
    assert "is undecided here" in describe_contest(comparison)[0]


def test_what_does_not_fit_fails(tmp_path):
    values = {"GO": [[1.0, None]], "HEFT": [[2.0, 2.0]], "metis": [[0.1, None]]}
    assert describe_contest(make_comparison(tmp_path, values)) == [
        '"learning wins" fails here: GO has no runtime for 1 of its items'
    ]
    alone = make_comparison(tmp_path, {"GO": [[1.0]]})
    assert describe_contest(alone)[0].startswith('no verdict on "learning wins"')


def test_recorded_runs_have_no_verdict(tmp_path):
    comparison = make_comparison(tmp_path, {"GO": [[1.0, 2.0]], "good": [[1.0, 2.0]]})
    recorded = {
        name: Arm(name, {1: replace(arm.outcomes[1], items=tmp_path / "none", recorded="elsewhere")})
        for name, arm in comparison.arms.items()
    }
    (sentence,) = describe_contest(replace(comparison, arms=recorded))
    assert sentence.endswith("recorded runs have no outputs to compare; --retrain measures them again")


def test_a_row_for_each_table(tmp_path):
    one = make_comparison(tmp_path, {"GO": [[2.0]], "HP": [[4.0]], "METIS": [[None]]})
    layout = ByTable(arm="GO", over=("HP",), beside=("METIS",), published={"one": {"GO": 3, "HP": 4, "METIS": "OOM"}})
    rows = build_rows({"one": one}, layout)
    assert rows[0] == ["", "GO", "HP", "METIS", "over HP", "search of GO", "published GO / HP / METIS"]
    assert rows[1] == ["one", "2", "4", "none", "+50.0 %", "30 s", "3 / 4 / OOM"]
    assert rows[2] == ["geometric mean", "", "", "", "+50.0 %", "", ""]


def test_the_published_percentages_are_computed_anew():
    """Two formulas are mixed, and four entries follow neither."""
    layout = Suite.read("placement").by_table
    assert layout is not None
    (line,) = check_printed(layout)
    for entry in ("amoebanet over by hand", "gnmt-2 over HDP", "transformer-xl-8 over HDP", "inception-b64 over HDP"):
        assert entry in line
    assert "4 are neither" in line
