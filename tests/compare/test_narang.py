"""The table of Narang et al. 2021, and scores that are read from validation curves."""

import tomllib
from pathlib import Path

from headwise.compare.cell import build_cells
from headwise.compare.config import ComparisonConfig
from headwise.compare.narang import FOLDER, PRETRAINING, SMALL, STEPS, render_tables
from headwise.compare.run import compare
from headwise.models.narang import ROWS
from headwise.runs import Run


def test_the_files_are_written_from_the_rows() -> None:
    """`python -m headwise.compare.narang` writes them anew."""
    for name, text in render_tables().items():
        assert (FOLDER / f"{name}.toml").read_text("utf-8") == text


def test_every_row_that_can_be_built_is_an_arm() -> None:
    table = ComparisonConfig.read(PRETRAINING)
    assert [arm.name for arm in table.arm] == [row.name for row in ROWS]
    cells = list(build_cells(table, Path("runs")))
    assert len(cells) == 3 * len(table.arm)
    assert {cell.experiment.train.steps for cell in cells} == {STEPS}
    assert len({cell.experiment.train.batch_size for cell in cells}) == 1
    kinds = {cell.arm: cell.experiment.train.optimizer.kind for cell in cells}
    adam = {name for name, kind in kinds.items() if kind == "adam"}
    assert adam == {"Rezero", "Rezero + LayerNorm", "Rezero + RMS Norm", "Fixup"}
    for row, cell in zip(ROWS, cells, strict=False):  # the model is that of the row at the small size
        assert cell.experiment.model == type(cell.experiment.model).model_validate(row.configure(SMALL))


def test_published_losses_stand_beside_the_arms() -> None:
    arms = {arm["name"]: arm for arm in tomllib.loads((FOLDER / f"{PRETRAINING}.toml").read_text("utf-8"))["arm"]}
    figures = {"early loss": 2.127, "final loss": 1.789, "runs": 5, "std": {"early loss": 0.003}}
    assert arms["SwiGLU"]["published"] == figures


def test_the_quick_rows_cover_the_range_of_published_losses() -> None:
    table = ComparisonConfig.read(PRETRAINING)
    quick = table.select_quick()
    assert len(list(build_cells(quick, Path("runs")))) == 10 and quick.seeds == (1,)
    losses, few = (sorted(arm.published.scores["early loss"] for arm in each.arm) for each in (table, quick))
    assert few[0] == losses[0] and few[-1] > losses[-5] and table.analysis.baseline in table.quick


def test_a_comparison_of_curves_has_their_scores(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("the cat sat on the mat and the dog sat on the log . " * 40)
    table = ComparisonConfig.model_validate(
        {
            "name": "curves", "score": "late", "lower": True, "curve": {"soon": 0.25, "late": 1.0},
            "budget": {"steps": 8},
            "experiment": {
                "task": {"kind": "denoise", "context": 16}, "tokeniser": {"kind": "characters"},
                "data": {"train": str(text), "format": "text", "cache": str(tmp_path / "cache")},
                "model": {"kind": "t5-narang-tiny"},
                "train": {"batch_size": 4, "validate_every": 2, "threads": 1},
            },
            "arm": [{"name": "base"}, {"name": "seldom", "set": {"train.validate_every": 3}}],
        }
    )  # fmt: skip
    comparison = compare(table, tmp_path / "runs", jobs=1)
    outcome = comparison.arms["base"].outcomes[1]
    rows = [row for row in Run(outcome.run).metrics.rows() if "valid" in row]
    assert {name: score.value for name, score in outcome.scores.items()} == {
        "soon": next(row["valid"]["nll"] for row in rows if row["step"] == 2),
        "late": rows[-1]["valid"]["nll"],
    }
    message = "curve: 'soon' is read at step 2, which has no validation; set validate_every"
    assert comparison.arms["seldom"].failures == {1: message}


def test_the_key_of_earlier_outcomes_is_unchanged_without_a_curve() -> None:
    plain, other = (
        next(iter(build_cells(ComparisonConfig.read("wirings").replace(curve=curve), Path("runs"))))
        for curve in ({}, {"early loss": 0.5})
    )
    assert plain.key == "a9ab991d56c85ffc" and other.key != plain.key
