"""Alignment pictures and head grids: right places, right numbers, safe text, every format."""

from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.image import imread

from headwise.errors import UserError
from headwise.inspect import Maps, draw_alignment, draw_head_grid, export, save
from headwise.inspect.svg import Grid, Rect, Text

SVG = "{http://www.w3.org/2000/svg}"


def soft(*shape: int) -> np.ndarray:
    scores = np.exp(2 * np.random.default_rng(0).normal(size=shape))
    return scores / scores.sum(axis=-1, keepdims=True)


def test_each_weight_is_in_the_column_of_its_source_and_the_row_of_its_target() -> None:
    weights = np.array([[0.9, 0.1], [0.25, 0.75], [0.001, 0.999]])
    drawing = draw_alignment(weights, ["a", "b"], ["A", "B", "C"], "title")
    place = {shape.text: shape for shape in drawing.shapes if isinstance(shape, Text)}
    assert place[".25"].x == place["a"].x
    assert place[".75"].x == place["b"].x
    assert place[".75"].y == pytest.approx(place["B"].y, abs=3)
    assert "1" in place  # .999 is written as 1, .001 is left out
    assert ".00" not in place


def test_the_largest_weight_of_each_row_is_framed_except_in_masked_rows() -> None:
    drawing = draw_alignment(np.array([[0.2, 0.8], [0.0, 0.0]]), ["a", "b"], ["A", "B"], "title")
    frames = [shape for shape in drawing.shapes if isinstance(shape, Rect) and shape.stroke == "#b4531a"]
    labels = {shape.text: shape for shape in drawing.shapes if isinstance(shape, Text)}
    assert len(frames) == 1
    assert frames[0].x + frames[0].width / 2 == labels["b"].x


def test_larger_weights_are_darker() -> None:
    drawing = draw_alignment(np.array([[0.05, 0.15, 0.3, 0.5]]), list("abcd"), ["A"], "title")
    (grid,) = [shape for shape in drawing.shapes if isinstance(shape, Grid)]
    light = grid.pixels.sum(axis=-1)[0].astype(int)
    assert (np.diff(light) < 0).all()


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (10, 12), (3, 60), (120, 90)])
def test_labels_are_inside_the_drawing(rows: int, columns: int) -> None:
    source, target = [f"word{i}" for i in range(columns)], [f"orangefarbenen{i}" for i in range(rows)]
    drawing = draw_alignment(soft(rows, columns), source, target, "a rather long title of a picture", "and a note")
    for shape in drawing.shapes:
        if isinstance(shape, Text):
            assert 0 <= shape.x <= drawing.width
            assert 0 <= shape.y <= drawing.height


def test_head_grid_shows_every_head_of_every_layer() -> None:
    weights = soft(3, 4, 5, 6)
    drawing = draw_head_grid(weights, list("ABCDE"), list("abcdef"), "heads")
    grids = [shape for shape in drawing.shapes if isinstance(shape, Grid)]
    assert len(grids) == 12
    assert [grid.pixels.shape for grid in grids] == [(5, 6, 3)] * 12
    assert sorted({grid.y for grid in grids}) == [grid.y for grid in grids[::4]]  # layers go down
    texts = [shape.text for shape in drawing.shapes if isinstance(shape, Text)]
    assert {"layer 3", "head 4"} <= set(texts)


HOSTILE = ["<script>", "&amp;", '"', "\x00", "\ud800", "$x^2$", " ", "", "中文"]


@pytest.mark.parametrize("ending", ["svg", "png"])
def test_any_token_can_be_drawn(ending: str, tmp_path: Path) -> None:
    weights = soft(len(HOSTILE), len(HOSTILE))
    path = save(draw_alignment(weights, HOSTILE, HOSTILE, "<b>&$"), tmp_path / f"x.{ending}")
    if ending == "svg":
        texts = [node.text for node in ElementTree.parse(path).getroot().iter(f"{SVG}text")]
        assert {"<script>", "&amp;", "␀", "�", "␣", "∅", "<b>&$"} <= set(texts)


def test_png_and_svg_are_the_same_drawing(tmp_path: Path) -> None:
    drawing = draw_alignment(soft(4, 5), list("abcde"), list("ABCD"), "title")
    pixels = imread(save(drawing, tmp_path / "x.png"))
    assert pixels.shape[:2] == pytest.approx((2 * drawing.height, 2 * drawing.width), abs=2)
    (grid,) = [shape for shape in drawing.shapes if isinstance(shape, Grid)]
    corner = pixels[int(2 * (grid.y + 6)), int(2 * (grid.x + 6)), :3]  # inside the first cell, beside its number
    assert (np.abs(corner * 255 - grid.pixels[0, 0]) < 3).all()


@pytest.fixture
def maps() -> Maps:
    return Maps({"cross": soft(2, 2, 3, 4), "decoder": soft(2, 2, 3, 3)}, tuple("word"), ("W", "ER", "D"))


@pytest.mark.parametrize("view", ["alignment", "heads"])
@pytest.mark.parametrize("ending", ["svg", "html"])
def test_export_selects_the_format_by_suffix(maps: Maps, view: str, ending: str, tmp_path: Path) -> None:
    path = export(maps, tmp_path / "new" / f"x.{ending}", "word", view=view)
    assert path.read_text("utf-8").startswith({"svg": "<svg", "html": "<!doctype"}[ending])
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_export_names_the_selected_map(maps: Maps, tmp_path: Path) -> None:
    assert "cross attention, layer 2 of 2, mean of 2 heads" in export(maps, tmp_path / "a.svg", "t").read_text()
    one = export(maps, tmp_path / "b.svg", "t", kind="decoder", layer=0, head=1).read_text()
    assert "decoder attention, layer 1 of 2, head 2 of 2" in one
    assert "&lt;bos&gt;" in one


def test_export_refuses_missing_kinds_layers_and_heads(maps: Maps, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no encoder attention was recorded; there is cross and decoder"):
        export(maps, tmp_path / "x.svg", "t", kind="encoder")
    with pytest.raises(UserError, match="there is no layer 6; this attention has 2 layers"):
        export(maps, tmp_path / "x.svg", "t", layer=5)
    with pytest.raises(UserError, match="no view is called 'head'; did you mean heads"):
        export(maps, tmp_path / "x.svg", "t", view="head")
    with pytest.raises(UserError, match=r"x.jpg: the file ends in '.jpg'; "):
        export(maps, tmp_path / "x.jpg", "t")
    (tmp_path / "taken").write_text("")
    with pytest.raises(UserError, match="cannot write"):
        export(maps, tmp_path / "taken" / "x.svg", "t")


def test_maps_check_their_shapes() -> None:
    with pytest.raises(ValueError, match="cross: expected"):
        Maps({"cross": soft(1, 1, 2, 3)}, tuple("ab"), tuple("AB"))
    with pytest.raises(ValueError, match="no attention is called 'self'"):
        Maps({"self": soft(1, 1, 2, 2)}, tuple("ab"), tuple("AB"))


def test_matrix_averages_over_heads_that_are_not_selected(maps: Maps) -> None:
    cross = maps.weights["cross"]
    assert np.allclose(maps.matrix("cross"), cross.mean(axis=(0, 1)))
    assert np.allclose(maps.matrix("cross", layer=-1), cross[1].mean(axis=0))
    assert np.allclose(maps.matrix("cross", layer=0, head=1), cross[0, 1])
    with pytest.raises(IndexError):
        maps.matrix("cross", layer=2)
