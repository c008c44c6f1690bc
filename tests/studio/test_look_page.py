"""The page that looks at attention, in a real browser."""

import json
import urllib.request

import numpy as np
import pytest
from playwright.sync_api import Page, expect

from headwise.experiment.load import load
from headwise.studio.binary_response import BinaryResponse
from headwise.studio.map_cache import make_thumbnails


def opened(page: Page, studio, state: str) -> Page:
    page.goto("about:blank")
    page.goto(f"{studio.url}#/look?{state}")
    expect(page.locator("main")).to_have_attribute("data-ready", "look", timeout=60_000)
    return page


def test_lines_equal_the_models_weights(page, studio, runs):
    opened(page, studio, "run=reverse&text=abc&target=cba&kind=cross&layer=0&heads=1")
    maps = load(runs / "reverse").inspect("abc", "cba")
    drawn = page.locator(".links path")
    wanted = maps.matrix("cross", layer=0, head=1)
    expect(drawn).to_have_count(int((wanted >= 0.01).sum()))
    heaviest = float(drawn.last.get_attribute("stroke-opacity"))
    assert abs(heaviest - wanted.max()) < 1e-3
    expect(page.locator("text.token")).to_have_count(len(maps.rows("cross")) + len(maps.columns("cross")))


def test_the_matrix_shows_the_weight_under_the_pointer(page, studio, runs):
    opened(page, studio, "run=reverse&text=abc&target=cba&kind=encoder&layer=1&heads=0&view=matrix")
    box = page.locator(".canvas > svg image").bounding_box()
    page.mouse.move(box["x"] + 2, box["y"] + 2)
    weight = load(runs / "reverse").inspect("abc", "cba").matrix("encoder", layer=1, head=0)[0, 0]
    expect(page.locator("section .note")).to_contain_text(f"a attends to a with weight {weight:.4f}")


def test_a_thumbnail_opens_its_head_and_the_url_restores_it(page, studio):
    opened(page, studio, "run=reverse&text=abc&view=model")
    page.get_by_role("button", name="layer 1, head 2").click()
    expect(page.locator(".matrix-figure")).to_be_visible()
    assert "layer=0" in page.url and "heads=1" in page.url and "view=matrix" in page.url
    page.reload()
    expect(page.locator("main")).to_have_attribute("data-ready", "look")
    expect(page.get_by_role("button", name="Matrix")).to_have_attribute("aria-pressed", "true")


def test_names_and_tokens_are_shown_as_text(page, studio):
    opened(page, studio, "run=%3Cb%3Ex&text=a%3Cb%3E")
    assert page.locator("select option b").count() == 0
    expect(page.locator("option", has_text="<b>x")).to_have_count(1)
    expect(page.locator("text.token", has_text="<").first).to_be_visible()


def test_an_error_is_shown_below_the_form(page, studio):
    page.goto("about:blank")
    page.goto(f"{studio.url}#/look?run=reverse")
    expect(page.locator("main")).to_have_attribute("data-ready", "form")
    page.get_by_role("button", name="Look").click()
    expect(page.get_by_role("alert")).not_to_be_empty()


def test_a_long_text_reports_omitted_weights(page, studio):
    opened(page, studio, f"run=reverse&text={'abcdefgh' * 20}&target=a&kind=encoder")
    assert page.locator(".links path").count() <= 3000
    expect(page.locator("section .note")).to_contain_text("largest")


def test_the_theme_button_changes_the_colours(page, studio):
    opened(page, studio, "run=reverse&text=abc&view=matrix")
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    shades = page.locator(".canvas > svg image").get_attribute("href")
    page.get_by_role("button", name="Dark or light").click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before
    expect(page.locator(".canvas > svg image")).not_to_have_attribute("href", shades)
    page.get_by_role("button", name="Dark or light").click()


def test_packed_weights_keep_four_decimals():
    pack, weights = BinaryResponse(), np.random.default_rng(0).random((2, 3, 4))
    where = pack.add(weights)
    packed = pack.to_bytes({"weights": where})
    length = int.from_bytes(packed[:4], "little")
    assert json.loads(packed[4 : 4 + length])["weights"] == where
    found = np.frombuffer(packed[4 + length :], "<u2").reshape(weights.shape) / 65_535
    assert np.abs(found - weights).max() < 1e-4


@pytest.mark.parametrize("size", [5, 24, 25, 300])
def test_thumbnails_are_max_pooled(size):
    weights = np.zeros((1, 1, size, size))
    weights[0, 0, size - 1, size // 2] = 1
    small = make_thumbnails(weights)
    assert max(small.shape) <= 24 and small.max() == 1


def test_runs_are_listed_with_their_tasks(studio):
    with urllib.request.urlopen(f"{studio.url}api/runs") as answer:
        found = {each["name"]: each for each in json.load(answer)}
    assert found["reverse"]["task"] == "transduce" and found["reverse"]["ready"]
