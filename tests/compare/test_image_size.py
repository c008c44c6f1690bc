"""The size of images comes from the data: a run says which one its model was built with, and is found again."""

from pathlib import Path

from headwise.compare.cell import Cell, build_cells
from headwise.compare.config import ComparisonConfig
from headwise.compare.worker import run_cell

TABLE = """
score = "accuracy"
seeds = [1]
[experiment]
task = {{ kind = "classify-images" }}
data = {{ name = "digits", cache = "{folder}/cache" }}
train = {{ batch_size = 64, threads = 1 }}
[experiment.model]
kind = "vit-tiny"
patch = {patch}
width = 8
heads = 1
depth = 1
[budget]
steps = 1
[[arm]]
name = "vit"
"""


def build_cell(folder: Path, patch: int) -> Cell:
    path = folder / "images.toml"
    path.write_text(TABLE.format(folder=folder, patch=patch))
    (cell,) = build_cells(ComparisonConfig.read(path), folder / "runs")
    return cell


def test_a_run_has_the_image_size_of_its_data(tmp_path: Path) -> None:
    cell = build_cell(tmp_path, 4)
    assert cell.experiment.model.image == (16, 16)
    run_cell(cell, lambda message: None)
    run = cell.find_run()
    assert run is not None and run.config["model"]["image"] == [8, 8] and run.config["model"]["channels"] == 1
    assert build_cell(tmp_path, 2).find_run() is None
