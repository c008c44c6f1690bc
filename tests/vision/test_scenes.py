"""Generated scenes: a function of seed and number, with correct boxes and captions."""

import re

import numpy as np
import pytest

from headwise.vision.scenes import (
    COLOURS,
    SHAPES,
    SUPERSAMPLING,
    SceneShape,
    compute_extent,
    describe_relation,
    draw_boxed,
    draw_captioned,
    draw_scenes,
    is_unambiguous,
    measure_visible,
    paint_shapes,
    render,
)

CAPTION = re.compile(
    rf"an? ({'|'.join(COLOURS)}) ({'|'.join(SHAPES)}) (above|below|left of|right of) "
    rf"an? ({'|'.join(COLOURS)}) ({'|'.join(SHAPES)})"
)


def test_a_scene_is_a_function_of_seed_and_number() -> None:
    again = draw_scenes("scenes", 2, 32, seed=3, start=5)
    pixels, boxes = draw_boxed(32, 3, 6)
    assert (again.pixels[1] == pixels).all()
    assert (again.targets[1].corners == boxes.corners).all()
    assert again.names == ["scenes 3.5", "scenes 3.6"]
    assert (draw_boxed(32, 4, 6)[0] != pixels).any()
    assert (draw_boxed(32, 3, 7)[0] != pixels).any()


def test_a_circle_has_the_box_of_its_radius() -> None:
    circle = SceneShape("circle", "red", 0.5, 0.4, 0.25)
    corners = np.array(compute_extent(np.asarray(paint_shapes([circle], 64)) == 1)) / SUPERSAMPLING
    assert corners == pytest.approx([16, 9.6, 48, 41.6], abs=0.5)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_single_shape_is_fully_visible(shape: str) -> None:
    assert measure_visible([SceneShape(shape, "red", 0.5, 0.5, 0.3, 0.2)], 64) == [pytest.approx(1, abs=0.05)]


def test_later_shapes_occlude_earlier_ones_and_boxes_are_of_the_visible_part() -> None:
    under, over = SceneShape("square", "red", 0.4, 0.5, 0.2), SceneShape("square", "blue", 0.5, 0.5, 0.2)
    owners = np.asarray(paint_shapes([under, over], 64))
    full, visible = (compute_extent(np.asarray(paint_shapes(shapes, 64)) == 1) for shapes in ([under], [under, over]))
    assert compute_extent(owners == 2) == compute_extent(np.asarray(paint_shapes([over], 64)) == 1)
    assert visible[:2] == full[:2]
    assert visible[2] < full[2]
    assert measure_visible([under, over], 64)[0] == pytest.approx(0.1 / (0.2 * 2**0.5), abs=0.03)


def test_boxes_are_inside_the_image_and_every_shape_is_visible() -> None:
    images = draw_scenes("scenes", 40, 32, seed=1)
    counts = [len(boxes) for boxes in images.targets]
    assert set(counts) >= {1, 2, 3}
    for boxes in images.targets:
        assert (boxes.corners >= 0).all()
        assert (boxes.corners <= 32).all()
        assert (boxes.corners[:, 2:] - boxes.corners[:, :2] > 1).all()


def test_colours_are_those_of_the_shapes_and_edges_are_smooth() -> None:
    pixels = render([SceneShape("circle", "red", 0.5, 0.5, 0.3)], 32, np.random.default_rng(0)).astype(float)
    assert pixels[:, 16, 16] == pytest.approx(COLOURS["red"], abs=30)
    row = pixels[0, 16]
    assert (np.abs(row - row[16]) > 20).any()


def test_captions_describe_the_scene() -> None:
    for number in range(60):
        _, caption = draw_captioned(32, 1, number)
        assert CAPTION.fullmatch(caption), caption
        assert not re.search(r"\ba orange|\ban [^o]", caption)
    words = {draw_captioned(32, 1, number)[1].split()[3] for number in range(60)}
    assert words == {"above", "below", "left", "right"}


def test_relations_are_relative_to_the_smaller_shape_and_unambiguous() -> None:
    large, small = SceneShape("circle", "red", 0.5, 0.2, 0.2), SceneShape("star", "blue", 0.55, 0.8, 0.1)
    assert describe_relation(large, small) == "above"
    assert describe_relation(small, large) == "below"
    assert is_unambiguous(large, small)
    assert not is_unambiguous(large, SceneShape("star", "blue", 0.9, 0.6, 0.1))  # as far to the right as down
    assert not is_unambiguous(large, SceneShape("star", "blue", 0.5, 0.4, 0.1))  # they meet
