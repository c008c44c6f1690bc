"""What is shown can be taken away, and an address brings it back."""

import json
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Page, expect

from headwise.experiment.load import load

LOOK = "run=reverse&text=abc&target=cba"


def taken(page: Page, label: str) -> str:
    with page.expect_download() as waiting:
        page.get_by_role("group", name="Export").first.get_by_role("button", name=label).click()
    return Path(waiting.value.path()).read_text("utf-8")


def test_exported_weights_equal_those_of_the_model(page, visit, runs):
    visit("look", f"{LOOK}&kind=cross&layer=0&heads=1,2")
    found = json.loads(taken(page, "JSON"))
    wanted = load(runs / "reverse").inspect("abc", "cba").weights["cross"][0]
    assert [each["head"] for each in found["maps"]] == [2, 3] and found["text"] == "abc"
    for each in found["maps"]:
        np.testing.assert_allclose(each["weights"], wanted[each["head"] - 1], atol=3e-5)


@pytest.mark.parametrize("view", ["heads", "matrix", "model"])
def test_every_view_of_look_is_exported_as_a_drawing(page, visit, view):
    visit("look", f"{LOOK}&kind=encoder&view={view}")
    drawing = taken(page, "SVG")
    assert drawing.startswith("<svg") and "var(--" not in drawing
    assert drawing.count("<image") == {"heads": 0, "matrix": 1, "model": 8}[view]


def test_a_drawing_can_be_copied(page, studio, visit):
    page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=studio.url.rstrip("/"))
    visit("explain", "topic=heads&run=reverse&text=abc", "heads")
    page.get_by_role("button", name="Copy").click()
    expect(page.locator("#announcement")).to_have_text("copied")
    kinds = page.evaluate("navigator.clipboard.read().then((items) => items.flatMap((item) => item.types))")
    assert sorted(kinds) == ["image/png", "text/plain"]
    text = page.evaluate("navigator.clipboard.readText()")
    assert text.startswith("<svg") and text.count("<image") == 4  # all heads in one drawing


def test_a_pinned_token_is_part_of_the_url_and_links_to_its_elements(page, visit):
    visit("look", f"{LOOK}&kind=encoder&layer=1&heads=2")
    token = page.get_by_role("button", name="b: show only its lines")
    token.focus()
    page.keyboard.press("Enter")
    expect(token).to_have_attribute("aria-pressed", "true")
    assert "pin=1" in page.url
    page.reload()
    expect(page.locator("main")).to_have_attribute("data-ready", "look", timeout=60_000)
    expect(page.get_by_role("button", name="b: show only its lines")).to_have_attribute("aria-pressed", "true")
    page.locator("section .note a").first.click()
    expect(page.locator("main")).to_have_attribute("data-ready", "neuron", timeout=60_000)
    assert "head=2" in page.url and "query=1" in page.url and "layer=1" in page.url
    expect(page.get_by_role("heading", name="“b” attends to")).to_be_visible()


def test_arrow_keys_move_through_a_matrix_and_keep_focus_when_heads_change(page, visit, runs):
    visit("look", f"{LOOK}&kind=encoder&layer=0&heads=0&view=matrix")
    page.locator(".matrix-figure").focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowDown"):
        page.keyboard.press(key)
    weight = load(runs / "reverse").inspect("abc", "cba").matrix("encoder", layer=0, head=0)[1, 1]
    expect(page.locator("section .note")).to_contain_text(f"b attends to b with weight {weight:.4f}")
    second = page.get_by_role("button", name="head 2")
    second.focus()
    page.keyboard.press("Enter")
    expect(second).to_have_attribute("aria-pressed", "true")
    expect(second).to_be_focused()


def test_the_selected_cost_is_part_of_the_url(page, visit):
    visit("catalogue", "model=transformer-tiny&what=activation_bytes", "model")
    pressed = page.get_by_role("group", name="Cost of").get_by_role("button", pressed=True)
    expect(pressed).to_have_text("Activations")
