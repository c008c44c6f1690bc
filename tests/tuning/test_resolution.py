"""Image models trained further: on larger images, on other labels, with another mark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import headwise
from headwise.blocks.positions.grid import LearnedGridPositions, interpolate_positions
from headwise.experiment.config import parse_experiment
from headwise.experiment.run import train_experiment
from headwise.tuning.transfer import resize_positions

TRAIN = {"steps": 1, "batch_size": 8, "threads": 1, "device": "cpu", "schedule": {"kind": "constant", "lr": 1e-12}}
MODEL = {"kind": "vit-tiny", "patch": 2, "width": 16, "depth": 1}


def learn(folder: Path, init_from: str = "", data: dict[str, Any] | None = None, **tables: Any) -> tuple[Any, str]:
    """A run of one step that changes next to nothing, and what was said of its beginning."""
    said: list[str] = []
    found = {
        "name": "run", "task": "classify-images", "train": TRAIN, "init_from": init_from,
        "data": {"name": "digits", "max_images": 64, "valid_size": 8, "cache": str(folder / "cache"), **(data or {})},
        **tables,
    }  # fmt: skip
    run, _ = train_experiment(parse_experiment(found), folder / "runs", announce=said.append)
    return headwise.load(run.path), said[0]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on images of 8 x 8 pixels, whose grid is 4 x 4."""
    folder = tmp_path_factory.mktemp("small")
    learn(folder, model=MODEL)
    return folder / "runs" / "run"


def test_larger_images_have_interpolated_positions_and_the_same_scale(small: Path, tmp_path: Path) -> None:
    old = headwise.load(small)
    new, said = learn(tmp_path, str(small), {"size": 12})
    one, other = (each.model.encoder.stem.positions.table for each in (old, new))
    torch.testing.assert_close(other, interpolate_positions(one, 1, (4, 4), (6, 6)), atol=1e-6, rtol=0)
    assert new.tokenisers.source.mean == old.tokenisers.source.mean and new.tokenisers.source.height == 12
    pixels = torch.rand(2, 1, 12, 12)
    torch.testing.assert_close(new.model(pixels), old.model(pixels), atol=1e-5, rtol=1e-5)
    assert "newly initialised: nothing" in said, said


def test_equal_grids_keep_their_positions_and_new_class_tokens_their_own() -> None:
    table = torch.randn(17, 8)
    torch.testing.assert_close(interpolate_positions(table, 1, (4, 4), (4, 4)), table)
    own, other = LearnedGridPositions(8, (4, 4), 2), LearnedGridPositions(8, (4, 4), 1)
    found = resize_positions(own, other)["table"]
    assert torch.equal(found[0], other.table[0]) and torch.equal(found[1], own.table[1])
    torch.testing.assert_close(found[2:], other.table[1:])
    assert not resize_positions(own, own) and not resize_positions(own, LearnedGridPositions(4, (3, 3), 2))


def test_a_distillation_token_is_new_and_the_rest_is_loaded(small: Path, tmp_path: Path) -> None:
    new, said = learn(tmp_path, str(small), model={**MODEL, "kind": "deit-tiny"})
    old = headwise.load(small)
    torch.testing.assert_close(
        new.model.encoder.stem.class_tokens[0], old.model.encoder.stem.class_tokens[0], atol=1e-6, rtol=0
    )
    assert "newly initialised: heads.1;" in said
    pixels = torch.rand(2, 1, 8, 8)
    assert len(new.model.head_logits(pixels)) == 2


def test_other_labels_get_another_head(small: Path, tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (40, 10, 10), np.uint8)
    np.savez(tmp_path / "things.npz", images=images, labels=np.arange(40) % 10)
    names = [f"thing {number}" for number in range(10)]
    files = {"name": "", "train": str(tmp_path / "things.npz"), "format": "npz", "classes": names}
    new, said = learn(tmp_path, str(small), files)
    assert "newly initialised: heads;" in said and new.task.classes == names
    assert (new.tokenisers.source.height, new.tokenisers.source.width) == (8, 8)
