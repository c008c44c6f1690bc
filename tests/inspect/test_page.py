"""The attention page in a real browser, opened from a file."""

import re
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Locator, Page, expect

from headwise.inspect import Maps
from headwise.inspect import render_page as html

HOSTILE = '<img src=x onerror="document.title=1">'
SCRIPT = "</script><script>document.title='owned'</script>"
SOURCE = ("h", "i", HOSTILE)
TARGET = ("HH", "AY", "<eos>", " ")


@pytest.fixture(scope="module")
def maps() -> Maps:
    chance = np.random.default_rng(0)
    shapes = {"encoder": (3, 3), "decoder": (4, 4), "cross": (4, 3)}
    scores = {kind: np.exp(chance.normal(size=(2, 3, *shape))) for kind, shape in shapes.items()}
    return Maps({k: s / s.sum(-1, keepdims=True) for k, s in scores.items()}, SOURCE, TARGET)


@pytest.fixture
def opened(page: Page, maps: Maps, tmp_path: Path) -> Page:
    file = tmp_path / "maps.html"
    file.write_text(html(maps, f"hi {SCRIPT} {{{{DATA}}}}", HOSTILE), encoding="utf-8")
    page.mouse.move(0, 0)
    page.goto(file.as_uri())
    return page


def cell(page: Page, row: int, column: int) -> Locator:
    return page.locator(f'td[data-row="{row}"][data-column="{column}"]')


def test_hovering_a_cell_shows_its_weight_and_highlights_its_tokens(opened: Page, maps: Maps) -> None:
    cell(opened, 1, 0).hover()
    weight = maps.matrix("cross", layer=1)[1, 0]  # at first: the last layer, mean of its heads
    expect(opened.locator("#reading")).to_have_text(f"“AY” attends to “h” with weight {weight:.4f}")
    expect(opened.locator("th.lit")).to_have_text(["h", "AY"])
    opened.mouse.move(0, 0)
    expect(opened.locator("th.lit")).to_have_count(0)


def test_selectors_change_kind_layer_and_head(opened: Page, maps: Maps) -> None:
    opened.locator("#kind").select_option(label="decoder")
    opened.locator("#layer").select_option(label="1")
    opened.locator("#head").select_option(label="3")
    cell(opened, 2, 0).hover()
    weight = maps.weights["decoder"][0, 2, 2, 0]
    expect(opened.locator("#reading")).to_have_text(f"“<eos>” attends to “<bos>” with weight {weight:.4f}")


def test_a_thumbnail_selects_its_head(opened: Page, maps: Maps) -> None:
    button = opened.get_by_role("button", name="layer 1, head 2")
    button.click()
    expect(button).to_have_attribute("aria-pressed", "true")
    cell(opened, 0, 1).hover()
    expect(opened.locator("#reading")).to_contain_text(f"{maps.weights['cross'][0, 1, 0, 1]:.4f}")


def test_hovering_a_token_names_its_largest_weight(opened: Page, maps: Maps) -> None:
    opened.locator('th[data-row="0"]').hover()
    best = maps.matrix("cross", layer=1)[0].max()
    expect(opened.locator("#reading")).to_contain_text("“HH” attends most to")
    expect(opened.locator("#reading")).to_contain_text(f"{best:.2f}")


def test_the_map_works_from_the_keyboard(opened: Page, maps: Maps) -> None:
    cell(opened, 0, 0).focus()
    for key in ("ArrowDown", "ArrowRight", "ArrowLeft", "ArrowLeft"):  # the last one stops at the edge
        opened.keyboard.press(key)
    expect(cell(opened, 1, 0)).to_be_focused()
    expect(opened.locator("#reading")).to_have_text(re.compile("“AY” attends to “h” with weight"))


def test_markup_in_tokens_and_titles_is_shown_as_text(opened: Page) -> None:
    expect(opened.locator("th").nth(2)).to_have_text(HOSTILE.replace(" ", "␣"))
    expect(opened.locator("h1")).to_have_text(f"hi {SCRIPT} {{{{DATA}}}}")
    expect(opened.locator("#note")).to_have_text(HOSTILE)
    assert opened.locator("img").count() == 0
    assert opened.title() not in ("1", "owned")


def test_nothing_is_fetched_and_nothing_fails(page: Page, maps: Maps, tmp_path: Path) -> None:
    file = tmp_path / "maps.html"
    file.write_text(html(maps, "hi"), encoding="utf-8")
    requests: list[str] = []
    problems: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(file.as_uri())
    page.emulate_media(color_scheme="dark")
    cell(page, 0, 0).hover()
    page.emulate_media(color_scheme="light")
    assert requests == [file.as_uri()]
    assert problems == []


def test_dark_and_light_mode_have_different_backgrounds(opened: Page) -> None:
    papers = set()
    for scheme in ("dark", "light"):
        opened.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        papers.add(opened.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(papers) == 2
