"""Pictures of filters, of positions and of what is looked at in an image."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from headwise import UserError
from headwise.blocks.grid import WindowPartition
from headwise.inference.trained_model import TrainedModel
from headwise.inspect.image_inspection import ImageInspection
from headwise.inspect.image_views import VIEWS, choose_default_view, show
from headwise.inspect.panels import compute_window_borders, overlay_weights, resize_for_tile
from headwise.inspect.patches import (
    compute_components,
    compute_position_vectors,
    compute_similarities,
    find_position_embedding,
    get_patch_filters,
    get_relative_biases,
)
from headwise.inspect.svg import Rect
from headwise.text.tokenisers import Tokenisers
from headwise.text.vocabulary import Labels

PICTURE = Image.fromarray(np.random.default_rng(0).integers(0, 256, (24, 16, 3), dtype=np.uint8))
OUTSIDE = {"detr-tiny": ("detect", "scenes"), "captioner-tiny": ("caption", "scene-captions")}


def test_components_are_orthonormal_and_explain_the_filters() -> None:
    filters = torch.randn(40, 3, 4, 4)
    components = compute_components(filters)
    rows = components.filters.reshape(28, -1)
    assert np.allclose(rows @ rows.T, np.eye(28), atol=1e-9)
    assert (np.diff(components.shares) <= 0).all() and 0 < components.shares.sum() < 1
    every = compute_components(filters, 48)
    assert every.filters.shape == (39, 3, 4, 4) and every.shares.sum() == pytest.approx(1)  # the mean takes one away


def test_filters_along_one_direction_have_one_component() -> None:
    direction = torch.randn(1, 1, 2, 2, dtype=torch.float64)
    components = compute_components(torch.randn(9, 1, 1, 1, dtype=torch.float64) * direction)
    assert components.filters.shape == (1, 1, 2, 2) and components.shares.tolist() == pytest.approx([1.0])
    unit = (direction / direction.norm()).numpy()
    assert np.allclose(np.abs(components.filters), np.abs(unit))


@pytest.mark.parametrize("name", ["vit-tiny", "cnn-tiny", "volo-tiny"])
def test_filters_are_the_first_weights_of_the_model(name: str, build_image_run) -> None:
    loaded = build_image_run(name)
    assert get_patch_filters(loaded.model).shape[1] == loaded.tokenisers.source.channels
    if name == "vit-tiny":
        pixels = torch.randn(1, 1, 16, 16)
        patches = loaded.model.encoder.stem.patches
        convolved = torch.nn.functional.conv2d(pixels, get_patch_filters(loaded.model), patches.project.bias, stride=4)
        assert torch.allclose(convolved.permute(0, 2, 3, 1), patches(pixels), atol=1e-5)


def test_positions_have_cosine_one_with_themselves(build_image_run) -> None:
    model = build_image_run("vit-tiny").model
    vectors, grid = compute_position_vectors(model, find_position_embedding(model), torch.zeros(1, 1, 16, 16))
    assert grid == (4, 4) and torch.allclose(vectors, model.encoder.stem.positions.table[1:])
    cosines = compute_similarities(vectors)
    assert np.allclose(np.diag(cosines), 1) and np.allclose(cosines, cosines.T) and np.abs(cosines).max() <= 1 + 1e-9
    waves = build_image_run("vit-tiny", positions="sinusoid").model
    cosines = compute_similarities(
        compute_position_vectors(waves, find_position_embedding(waves), torch.zeros(1, 1, 16, 16))[0]
    )
    assert np.allclose(np.diag(cosines), 1) and cosines[0, 1] > cosines[0, 2]  # neighbours are alike


def test_relative_position_biases_are_tables_of_offsets(build_image_run) -> None:
    model = build_image_run("swin-tiny").model
    tables = get_relative_biases(model)
    assert [tuple(table.shape) for table in tables] == [(2, 3, 3)] * 2 + [(4, 3, 3)] * 2
    table = next(module.table for module in model.modules() if hasattr(module, "table"))
    assert torch.equal(tables[0][1, 0, 2], table[2, 1])  # one up, one to the right, in the second head


ALL = VIEWS.keys() - {"frequency"}  # which is of a whole set of images
KNOWN = {
    "vit-tiny": ALL - {"queries"},
    "cait-tiny": ALL - {"queries"},
    "swin-tiny": ALL - {"queries"},
    "mixer-tiny": {"filters"},
    "perceiver-image-tiny": {"positions", "layers", "heads", "queries"},
    "detr-tiny": ALL - {"positions"},
    "captioner-tiny": ALL,
}


@pytest.mark.parametrize("name", KNOWN)
def test_each_view_is_drawn_or_refused_in_one_sentence(name: str, build_image_run, tmp_path: Path) -> None:
    loaded = build_image_run(name, *OUTSIDE.get(name, ()))
    scenes = {view: ImageInspection(loaded, None if view in ("filters", "positions") else PICTURE) for view in VIEWS}
    for view in KNOWN[name]:
        result = show(view, scenes[view])
        json.dumps(result.to_json())
        assert result.save(tmp_path / f"{view}.svg", "<b>&").read_text().startswith(("<svg", "<?xml"))
    for view in ALL - KNOWN[name]:
        with pytest.raises(UserError, match="--view"):
            show(view, scenes[view])
    assert choose_default_view(loaded.model) in KNOWN[name] or name == "mixer-tiny"


def test_each_head_of_each_layer_has_a_tile(build_image_run) -> None:
    sheet = show("heads", ImageInspection(build_image_run("swin-tiny"), PICTURE))
    names = [tile.name if tile else None for tile in sheet.tiles]
    assert names[:4] == ["image", None, None, None]  # then a line for each layer
    assert names[4:12] == ["1.1", "1.2", None, None, "2.1", "2.2", None, None] and names[-1] == "4.4"
    assert sheet.tiles[8].lines and not sheet.tiles[12].lines  # the last grid is a single window
    one = show("heads", ImageInspection(build_image_run("swin-tiny"), PICTURE, layer=3))
    assert [tile.name for tile in one.tiles if tile] == ["image", "3.1", "3.2", "3.3", "3.4"]


def test_a_patch_can_be_the_query(build_image_run) -> None:
    loaded = build_image_run("vit-tiny")
    inspection = ImageInspection(
        loaded, PICTURE, layer=2, head=3, at=(13, 6)
    )  # of 16 x 24 pixels the model sees rows 4 to 19
    assert inspection.crop_box == (0, 4, 16, 20) and inspection.locate_query((4, 4)) == (0, 3)
    sheet = show("layers", inspection)
    weights = np.array(sheet.to_json()["maps"][0]["weights"])
    expected = inspection.attentions[1].weights[0, 2, 1 + 3, 1:].view(4, 4)
    assert np.allclose(weights, expected, atol=1e-5)
    assert sheet.tiles[1].boxes == ((0.75, 0.0, 1.0, 0.25),) and "of the framed patch, head 3" in sheet.note
    frames = [shape for shape in sheet.draw("t").shapes if isinstance(shape, Rect) and shape.line == 1.6]
    assert len(frames) == 1


@pytest.mark.parametrize(
    ("view", "settings", "sentence"),
    [
        ("layers", {"layer": 3}, "there is no layer 3; this model has 2"),
        ("layers", {"head": 5}, "there is no head 5; this attention has 4"),
        ("rollout", {"at": (3, 2)}, "y from 4 to 19"),
        ("rollout", {"source": None}, "there is no image"),
        ("distance", {"layer": 1}, "nothing to do with --layer"),
        ("alignment", {}, "is of texts"),
    ],
)
def test_errors_are_one_sentence(view: str, settings: dict, sentence: str, build_image_run) -> None:
    with pytest.raises(UserError, match=sentence):
        show(view, ImageInspection(build_image_run("vit-tiny"), **{"source": PICTURE, **settings}))


def test_each_word_of_a_caption_has_a_map(build_image_run) -> None:
    loaded = build_image_run("captioner-tiny", *OUTSIDE["captioner-tiny"])
    sheet = show("queries", ImageInspection(loaded, PICTURE))
    maps = np.array([tile["weights"] for tile in sheet.to_json()["maps"]])
    assert maps.shape[1:] == (4, 4) and np.allclose(maps.sum((1, 2)), 1, atol=1e-3)


def test_larger_weights_are_bluer_on_any_image() -> None:
    ground = resize_for_tile(Image.new("L", (4, 4), 0), 40)
    assert ground.shape == (80, 80, 3)
    light = overlay_weights(ground, np.array([[0.0, 0.1], [0.2, 0.4]]))[[0, 0, 79, 79], [0, 79, 0, 79]].astype(int)
    assert (np.diff(light[:, 0]) < 0).all() and light[-1, 2] > light[-1, 0] + 50


def test_borders_are_those_of_shifted_windows() -> None:
    assert compute_window_borders(WindowPartition.of((4, 4), 2, 0)) == (((0, 0.5), (1, 0.5)), ((0.5, 0), (0.5, 1)))
    assert [line[0][1] for line in compute_window_borders(WindowPartition.of((4, 4), 2, 1))[:2]] == [0.25, 0.75]


def test_the_frequency_view_uses_all_held_out_images(build_image_run, tmp_path: Path) -> None:
    loaded = build_image_run("vit-tiny", image=8, patch=2)
    digits = Tokenisers(loaded.tokenisers.source, Labels("0123456789"))
    task = loaded.experiment.create_task(digits)
    loaded = TrainedModel(task.build(loaded.experiment.model).eval(), digits, loaded.experiment)
    result = show("frequency", ImageInspection(loaded, None))
    numbers = result.to_json()
    assert numbers["images"] == 360 and numbers["low"][-1] == numbers["accuracy"]  # all frequencies are the image
    assert result.table().count("\n") == 1 + len(numbers["radii"])
    assert result.save(tmp_path / "frequency.svg", "digits").exists()
    with pytest.raises(UserError, match="image"):
        show("frequency", ImageInspection(loaded, PICTURE))
