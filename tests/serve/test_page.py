"""The page of the service in a browser: forms for the verbs of each model, answers as text."""

import re

import pytest
from playwright.sync_api import Page, expect


@pytest.fixture
def opened(page: Page, server) -> Page:
    page.goto(f"{server.url}/")
    expect(page.locator("body")).to_have_attribute("data-ready", "true")
    return page


def choose(page: Page, model: str, verb: str) -> None:
    page.locator("#models").get_by_role("button", name=model, exact=True).click()
    page.locator("#verbs").get_by_role("button", name=verb, exact=True).click()


def test_a_text_is_streamed_and_curl_says_how(opened):
    opened.locator("textarea[name=text]").fill("to be")
    expect(opened.locator("#curl")).to_contain_text('"text":"to be"')
    opened.get_by_role("button", name="Send").click()
    expect(opened.locator("#time")).to_have_text(re.compile(r"\d+ ms"))
    assert opened.locator("#answer .text").text_content().strip()


def test_labels_with_markup_are_shown_as_text(opened):
    """One of the labels of the model is <b>x."""
    choose(opened, "polar", "classify")
    opened.locator("textarea[name=text]").fill("<script>document.title = 'owned'</script>")
    opened.get_by_role("button", name="Send").click()
    expect(opened.locator("#answer .bar")).to_have_count(3)
    assert "<b>x" in opened.locator("#answer").inner_text() and opened.locator("#answer b").count() == 3
    assert opened.title() == "Headwise service"


def test_an_error_is_a_sentence(opened):
    choose(opened, "bert", "fill-mask")
    opened.locator("textarea[name=text]").fill("no gap")
    opened.get_by_role("button", name="Send").click()
    expect(opened.locator("#problem")).to_contain_text("[MASK]")


def test_maps_are_drawn(opened):
    choose(opened, "lm", "attention")
    opened.get_by_role("button", name="Send").click()
    expect(opened.locator(".maps tr")).to_have_count(6)
