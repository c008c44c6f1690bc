"""The bar of a long request, and the button that stops it, in a real browser."""

import json
import re
import time
import urllib.request
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Page, expect

LONG = {"run": "reverse", "text": "abcdefgh" * 120, "target": "abcdefgh" * 12}  # minutes of sweeps over tokens


def wait_until_idle(studio):
    """Until the worker says that it computes nothing: the request was given up, not only its answer."""
    end = time.monotonic() + 60
    while True:
        with urllib.request.urlopen(f"{studio.url}api/workers") as answer:
            found = {each["name"]: each for each in json.load(answer)}
        if found["heavy"].get("running") == []:
            return
        assert time.monotonic() < end
        time.sleep(0.1)


@pytest.fixture
def sweeping(page: Page, studio) -> Page:
    """The page Intervene while it measures what every token of a long text does."""
    page.goto("about:blank")
    page.goto(f"{studio.url}#/intervene?{urlencode(LONG)}")
    expect(page.locator("#progress")).to_be_visible(timeout=60_000)
    expect(page.locator("#progress")).to_contain_text("Measuring")
    return page


def test_progress_moves_and_a_button_stops_it(sweeping, studio):
    bar = sweeping.get_by_role("progressbar")
    expect(sweeping.locator("#progress .quiet")).to_contain_text(re.compile(r"^1 of 7, [1-9]\d? %$"), timeout=60_000)
    assert 0 < float(bar.get_attribute("value")) < 1 / 7
    stop = sweeping.get_by_role("button", name="Stop")
    stop.focus()
    sweeping.keyboard.press("Enter")
    expect(sweeping.locator("form [role=alert]")).to_have_text("this was stopped")
    expect(sweeping.locator("#progress")).to_be_hidden()
    wait_until_idle(studio)
    expect(sweeping.locator("[aria-label='Tokens']")).to_contain_text("Not measured.")
    assert sweeping.evaluate("document.activeElement.id") == "view"  # the keyboard is not lost with the button
    sweeping.get_by_label("Source text").fill("abc")  # the page goes on working
    sweeping.get_by_role("button", name="Score").click()
    expect(sweeping.locator("main")).to_have_attribute("data-ready", "intervene", timeout=60_000)


@pytest.mark.parametrize("leave", ["#/explain", "about:blank"])
def test_another_page_stops_it(sweeping, studio, leave):
    sweeping.goto(leave if leave == "about:blank" else f"{studio.url}{leave}")
    wait_until_idle(studio)
    if leave != "about:blank":
        expect(sweeping.locator("#progress")).to_be_hidden()
