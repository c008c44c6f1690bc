"""Training FLOPs to the score of the weakest arm."""

import json
from dataclasses import replace
from math import exp, log
from pathlib import Path
from typing import Literal

import pytest

from headwise.compare.config import AnalysisConfig, ComparisonConfig
from headwise.compare.reach import find_crossing, find_reach
from headwise.compare.render import build_notes, build_rows, print_json
from headwise.compare.values import Arm, Comparison, Outcome
from headwise.compare.worker import list_validations
from headwise.evaluate.score import Score
from headwise.runs import Run


def make_outcome(score: float, per_token: int | None, *validation: tuple[int, float]) -> Outcome:
    tokens = validation[-1][0] if validation else None
    scores = {"BLEU": Score("BLEU", score, score - 1, score + 1)}
    return Outcome(
        scores, 10, per_token, 1.0, 1.0, Path("run"), Path("items"), tokens=tokens, validation=list(validation)
    )


def make_comparison(lower: bool = False, reach: Literal["", "flops", "tokens"] = "flops") -> Comparison:
    sign = -1 if lower else 1
    slow = {1: make_outcome(5, 10, (100, sign * 1.0), (200, sign * 4.0), (300, sign * 3.0))}
    fast = {
        1: make_outcome(9, 20, (50, sign * 2.0), (100, sign * 6.0)),
        2: make_outcome(8, 20, (50, sign * 5.0), (100, sign * 7.0)),
    }
    uncounted = {1: make_outcome(7, None, (50, sign * 9.0)), 2: make_outcome(6, 10)}
    arms = {"slow": Arm("slow", slow), "fast": Arm("fast", fast), "uncounted": Arm("uncounted", uncounted)}
    return Comparison("table", arms, score="BLEU", lower=lower, analysis=AnalysisConfig(reach=reach))


@pytest.mark.parametrize("lower", [False, True])
def test_every_run_reaches_the_best_score_of_the_weakest(lower: bool) -> None:
    reach = find_reach(make_comparison(lower))
    assert reach is not None and (reach.level, reach.weakest) == (-4.0 if lower else 4.0, "slow")
    # three passes, FLOPs of a token, tokens: linear between validations, the first one if it is enough
    assert reach.costs == {"slow": {1: 3 * 10 * 200}, "fast": {1: 3 * 20 * 75, 2: 3 * 20 * 50}}


def test_a_curve_is_linear_between_its_points() -> None:
    curve = [(10.0, 0.0), (20.0, 1.0), (30.0, 1.0), (40.0, 5.0)]
    assert [find_crossing(curve, level) for level in (-1.0, 0.0, 0.5, 1.0, 4.0)] == [10, 10, 15, 20, 37.5]


def test_the_table_has_both_columns_only_if_it_asks_for_them(capsys: pytest.CaptureFixture[str]) -> None:
    header, *rows = build_rows(make_comparison())
    columns = [header.index("training FLOPs"), header.index("FLOPs to 4")]
    assert [[row[column] for column in columns] for row in rows] == [["9e+03", "6e+03"], ["6e+03", "3.8e+03"], ["", ""]]
    assert "FLOPs to 4: of training, up to the best validation score of slow, the weakest" in build_notes(
        make_comparison()
    )
    print_json(make_comparison())
    assert json.loads(capsys.readouterr().out)["reach"]["costs"]["fast"] == {"1": 4500.0, "2": 3000.0}
    plain = make_comparison(reach="")
    assert not any("FLOPs to" in title for title in build_rows(plain)[0]) and find_reach(plain) is None


def make_frames(*arms: tuple[str, dict[int, list[tuple[int, float]]]], share: float = 0.8) -> Comparison:
    outcomes = {
        name: Arm(name, {seed: replace(make_outcome(5, None, *curve), unit="frame") for seed, curve in curves.items()})
        for name, curves in arms
    }
    settings = AnalysisConfig(reach="tokens", reach_share=share, baseline="crops")
    return Comparison("table", outcomes, score="return", lower=False, analysis=settings)


def test_tokens_to_a_share_of_the_best_score() -> None:
    plain = {1: [(100, 0.0), (200, 9.0), (300, 20.0)], 2: [(100, 1.0), (200, 2.0)]}
    crops = {1: [(100, 8.0), (200, 24.0)], 2: [(100, 0.0), (200, 0.0), (400, 20.0)]}
    curl = {1: [(50, 16.0)], 2: [(100, 12.0), (200, 20.0)]}
    never = {1: [(100, 3.0)]}
    table = make_frames(("plain", plain), ("crops", crops), ("curl", curl), ("never", never), share=16 / 24)
    header, *rows = build_rows(table)
    column = header.index("frames to 16")
    assert [row[column] for row in rows] == ["264 (1 of 2)", "255", "100", "never (0 of 1)"]
    notes = [note for note in build_notes(table) if note.startswith("frames to 16")]
    ratios = [log(50 / 150), log(150 / 360)]
    mean, half = sum(ratios) / 2, 12.706 * abs(ratios[0] - ratios[1]) / 2
    wanted = f"curl needs {exp(mean):.2f} [{exp(mean - half):.2f}, {exp(mean + half):.2f}] of those of crops"
    assert (
        len(notes) == 2
        and notes[0].startswith("frames to 16: of training, up to 67 % of the best")
        and wanted in notes[1]
    )


def test_nothing_is_reached_without_validations_or_a_direction() -> None:
    arms = {"one": Arm("one", {1: make_outcome(1, 10)})}
    assert find_reach(Comparison("table", arms, lower=False, analysis=AnalysisConfig(reach="flops"))) is None
    unknown = make_comparison()
    assert find_reach(Comparison("table", unknown.arms, lower=None, analysis=unknown.analysis)) is None


def test_validations_are_placed_by_the_tokens_before_them(tmp_path: Path) -> None:
    run = Run.create_unique(tmp_path, "run", {})
    rows = [{"tokens": 70}, {"valid": {"bleu": 1.0}}, {"tokens": 90}, {"tokens": 140}, {"valid": {"bleu": 2.0}}]
    (run.path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert list_validations(run, "bleu") == [(70, 1.0), (140, 2.0)]


def test_the_table_of_translation_has_the_published_rows_and_one_budget() -> None:
    table = ComparisonConfig.read("translation")
    figures = {arm.name: arm.published.scores for arm in table.arm}
    assert figures["GNMT"] == {"BLEU": 24.6, "EN-FR": 39.92, "FLOPs": 2.3e19, "FLOPs EN-FR": 1.4e20}
    assert list(figures) == [
        "ByteNet", "Deep-Att + PosUnk", "GNMT", "ConvS2S", "MoE", "Transformer (base)", "Transformer (big)",
    ]  # fmt: skip
    budgets = {table.build_experiment(arm, seed).train.flops for arm in table.arm for seed in table.seeds}
    assert budgets == {table.budget.flops} and len(table.seeds) == 3 and table.analysis.reach
