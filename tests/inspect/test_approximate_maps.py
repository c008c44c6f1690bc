"""Maps of mixers that form no softmax: beside the exact one, of any sign, and of as many heads as each layer has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from playwright.sync_api import Page, expect

import headwise
from headwise import UserError
from headwise.inference.attention_maps import collect_attention
from headwise.inspect import Maps, draw_alignment, draw_head_grid, export
from headwise.inspect import render_page as html
from headwise.inspect.colour import Scale
from headwise.inspect.svg import Grid, Text
from headwise.text.tokenisers import Tokenisers
from headwise.text.vocabulary import Characters

LETTERS = Characters("abcdefgh")
SIDES = Tokenisers(LETTERS, LETTERS)


def record_maps(*mixers: Any) -> Maps:
    """The maps of a small encoder with these mixers, one a layer, and always the same weights."""
    torch.manual_seed(0)
    model = headwise.build("bert-tiny", vocab=LETTERS.size + 1, depth=len(mixers)).eval()
    with torch.no_grad():  # enough for weights that differ
        for name, weight in model.named_parameters():
            if "qkv.project" in name:
                weight.mul_(5)
    for layer, mixer in enumerate(mixers):
        model = headwise.swap(model, mixer, layers=[layer], announce=lambda text: None)
    return collect_attention(model, SIDES, "abcdefg")


def test_approximate_maps_have_an_exact_map() -> None:
    few, many = (record_maps({"kind": "performer", "features": count}) for count in (8, 4096))
    exact = record_maps("attention").weights["encoder"]
    np.testing.assert_allclose(many.exact["encoder"], exact, atol=1e-5)
    errors = [np.abs(maps.weights["encoder"] - exact).max() for maps in (few, many)]
    assert errors[1] < errors[0] / 4


def test_exact_mixers_have_no_exact_map() -> None:
    assert not record_maps("attention").exact and not record_maps("fourier").exact


def test_layers_may_differ_in_heads() -> None:
    maps = record_maps("attention", "fourier")
    weights = maps.weights["encoder"]
    assert weights.shape[:2] == (2, 4) and np.isnan(weights[1, 1:]).all() and not np.isnan(weights[1, 0]).any()
    assert (maps.heads("encoder"), maps.heads("encoder", 0), maps.heads("encoder", 1)) == (4, 4, 1)
    np.testing.assert_array_equal(maps.matrix("encoder", layer=1), weights[1, 0])
    np.testing.assert_allclose(maps.matrix("encoder"), (weights[0].sum(0) + weights[1, 0]) / 5, atol=1e-6)
    assert not maps.exact  # nothing is approximated here
    drawing = draw_head_grid(weights, maps.rows("encoder"), maps.columns("encoder"), "t")
    grids = [shape for shape in drawing.shapes if isinstance(shape, Grid)]
    assert len(grids) == 5


def test_a_layer_without_queries_has_no_exact_map(tmp_path: Path) -> None:
    maps = record_maps("linear", "fourier", "attention")
    exact = maps.exact["encoder"]
    assert np.isnan(exact[1]).all() and not np.isnan(exact[0]).any()
    np.testing.assert_array_equal(exact[2], maps.weights["encoder"][2])
    drawn = export(maps, tmp_path / "x.svg", "abc", "exact", "encoder", layer=0, head=1).read_text()
    assert "implied: encoder attention, layer 1 of 3, head 2 of 4" in drawn and "exact softmax" in drawn
    with pytest.raises(UserError, match="layer 2 of 3, its only head: does not approximate softmax attention"):
        export(maps, tmp_path / "x.svg", "abc", "exact", "encoder", layer=1)
    with pytest.raises(UserError, match="there is no head 2; this attention has 1 heads"):
        export(maps, tmp_path / "x.svg", "abc", kind="encoder", layer=1, head=1)


def test_negative_weights_use_a_diverging_colour_scale() -> None:
    weights = np.array([[1.0, 0.0, -1.0], [0.5, 0.001, -0.25]])
    drawing = draw_alignment(weights, list("abc"), list("AB"), "waves")
    (grid,) = [shape for shape in drawing.shapes if isinstance(shape, Grid)]
    up, none, down = grid.pixels[0].astype(int)
    assert up[2] > up[0] and down[0] > down[2] and none.min() > 240  # blue, orange, paper
    words = [shape.text for shape in drawing.shapes if isinstance(shape, Text)]
    assert {"-1", "-.25", "0", "1"} <= set(words)
    assert Scale.fit(np.array([0.2, -1e-9])) == Scale(0.2) and Scale.fit(weights) == Scale(1.0, signed=True)


@pytest.fixture
def opened(page: Page, tmp_path: Path) -> Page:
    implied = np.full((2, 2, 2, 2), 0.25)
    implied[0, 1] = [[0.0, -0.5], [1.5, 0.25]]
    implied[1, 1] = np.nan
    exact = np.full((2, 2, 2, 2), np.nan)
    exact[0] = 0.5
    file = tmp_path / "maps.html"
    file.write_text(html(Maps({"encoder": implied}, ("h", "i"), exact={"encoder": exact}), "hi"), encoding="utf-8")
    page.mouse.move(0, 0)
    page.goto(file.as_uri())
    return page


def test_the_page_switches_between_implied_and_exact(opened: Page) -> None:
    reading, cell = opened.locator("#reading"), opened.locator('td[data-row="1"][data-column="0"]')
    opened.get_by_role("button", name="layer 1, head 2").click()
    cell.hover()
    expect(reading).to_contain_text("with weight 1.5000")
    expect(cell).to_have_text("1.50")
    expect(opened.locator('td[data-row="0"][data-column="1"]')).to_have_text("-.50")
    expect(opened.locator("#sum")).to_be_hidden()
    opened.locator("#map-of").select_option("exact")
    opened.mouse.move(0, 0)
    cell.hover()
    expect(reading).to_contain_text("with weight 0.5000")
    expect(opened.locator("#sum")).to_be_visible()


def test_the_page_offers_the_heads_of_each_layer(opened: Page) -> None:
    opened.locator("#layer").select_option(label="1")
    expect(opened.locator("#head option")).to_have_text(["mean of all", "1", "2"])
    opened.locator("#head").select_option(label="2")
    opened.locator("#layer").select_option(label="2")
    expect(opened.locator("#head option")).to_have_text(["mean of all", "1"])
    expect(opened.locator("#heads button")).to_have_count(3)
    opened.locator("#map-of").select_option("exact")  # this layer has none: its own map stays
    opened.locator('td[data-row="0"][data-column="0"]').hover()
    expect(opened.locator("#reading")).to_contain_text("with weight 0.2500")
