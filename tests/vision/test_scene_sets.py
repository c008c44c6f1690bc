"""The cache of generated scenes: the same images and targets, drawn once, and again if they might differ."""

from pathlib import Path

import numpy as np
import pytest

from headwise.vision import scene_sets
from headwise.vision.config import ImagesConfig
from headwise.vision.corpora import load_images
from headwise.vision.images import Images
from headwise.vision.scene_sets import load_scenes
from headwise.vision.scenes import VERSION, draw_boxed, draw_captioned, draw_scenes


def assert_same(actual: Images, expected: Images) -> None:
    assert np.array_equal(actual.pixels, expected.pixels) and list(actual.names) == list(expected.names)
    for target, other in zip(actual.targets, expected.targets, strict=True):
        if isinstance(other, str):
            assert target == other
        else:
            assert target.labels == other.labels and np.array_equal(target.corners, other.corners)


@pytest.mark.parametrize("name", ["scenes", "scene-captions"])
def test_cached_scenes_equal_drawn_ones(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = draw_scenes(name, 3, 16, seed=2, start=4)
    assert_same(load_scenes(tmp_path, name, 3, 16, 2, 4), expected)
    monkeypatch.setattr(scene_sets, "draw_scenes", lambda *arguments: pytest.fail("it was drawn again"))
    assert_same(load_scenes(tmp_path, name, 3, 16, 2, 4), expected)


def test_the_cache_key_has_all_inputs_of_a_drawing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = [("scenes", 2, 16, 1, 0), ("scene-captions", 2, 16, 1, 0), ("scenes", 1, 16, 1, 0)]
    settings += [("scenes", 2, 8, 1, 0), ("scenes", 2, 16, 2, 0), ("scenes", 2, 16, 1, 1)]
    for arguments in settings:
        assert_same(load_scenes(tmp_path, *arguments), draw_scenes(*arguments))
    assert len(list(tmp_path.iterdir())) == len(settings)
    monkeypatch.setattr(scene_sets, "VERSION", VERSION + 1)
    load_scenes(tmp_path, *settings[0])
    assert len(list(tmp_path.iterdir())) == len(settings) + 1


def test_a_damaged_cache_is_drawn_again(tmp_path: Path) -> None:
    load_scenes(tmp_path, "scenes", 2, 16, 1, 0)
    for name in scene_sets.FILES:
        (file,) = tmp_path.glob(f"*/{name}")
        file.write_bytes(b"x" + file.read_bytes()[1:])
        assert_same(load_scenes(tmp_path, "scenes", 2, 16, 1, 0), draw_scenes("scenes", 2, 16))


def test_held_out_scenes_stay_when_train_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for part, count in (("TEST", 3), ("VALID", 2)):
        monkeypatch.setattr(scene_sets, part, count)
    few, more = (
        load_images(ImagesConfig(name="scenes", size=16, max_images=most, cache=str(tmp_path))) for most in (2, 4)
    )
    assert_same(few.test, more.test)
    assert_same(few.valid, more.valid)
    assert len(few.train) == 2 and more.train.names == [f"scenes 1.{number}" for number in (5, 6, 7, 8)]


def test_another_drawing_needs_another_version() -> None:
    """If this fails, scenes are drawn differently from cached ones: raise VERSION, and the expected values here."""
    assert VERSION == 1
    assert draw_captioned(32, 1, 0)[1] == "a purple cross below an orange circle"
    pixels, boxes = draw_boxed(32, 1, 0)
    assert boxes.labels == ("triangle", "square") and pixels.mean((1, 2)) == pytest.approx([102, 99.5, 106], abs=1)
