"""Addresses: they say what is shown, and what they say wrongly is told in a sentence."""

import re
from urllib.parse import parse_qs, urlencode

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Page, expect

LOOK = {"run": "reverse", "text": "abc", "target": "cba"}
WROTE = {"run": "reverse", "text": "abc"}
# page -> what makes it complete, and for each parameter values that it cannot have
PAGES = {
    "look": (
        LOOK,
        {
            "run": ["nobody"], "kind": ["sideways"], "view": ["abc"], "layer": ["abc", "-1", "1.5", "99"],
            "heads": ["0,x", "99"], "exact": ["yes"], "pin": ["-1", "99"],
        },
    ),
    "step": (
        WROTE,
        {
            "run": ["nobody"], "tokens": ["4,,x", "999999"], "temperature": ["abc", "9"], "k": ["abc", "51"],
            "p": ["abc", "0"], "kind": ["sideways"], "layer": ["abc", "99"], "all": ["yes"], "beams": ["5"],
        },
    ),
    "intervene": (
        LOOK,
        {
            "run": ["nobody"], "hidden": ["abc", "99"], "off": ["cross.x", "sideways.0", "cross.0.99"],
        },
    ),
    "explain?topic=attention": (
        {},
        {
            "topic": ["abc"], "scaled": ["no"], "causal": ["yes"], "inputs": ["abc", "1,2"], "query": ["1,x;2,3", "1"],
            "key": ["abc", "1;2;3"], "value": ["abc", "1"],
        },
    ),
    "explain?topic=masks": (
        {},
        {
            "padding": ["abc", "99"], "side": ["abc"], "left": ["99"], "right": ["abc"], "segments": ["0"],
            "on": ["causal,abc"],
        },
    ),
    "explain?topic=positions": (
        {},
        {
            "kind": ["abc"], "length": ["abc", "9999"], "width": ["0"], "heads": ["99"], "head": ["-1", "99"],
            "which": ["abc"],
        },
    ),
    "explain?topic=positions&kind=run": (
        {"run": "reverse"}, {"run": ["nobody"], "which": ["abc", "99"], "length": ["abc"], "head": ["abc"]},
    ),
    "explain?topic=heads": (LOOK, {"run": ["nobody"], "kind": ["sideways"], "layer": ["abc", "99"]}),
    "explain?topic=order": (
        {"text": "one two three"}, {"positions": ["yes"], "order": ["abc", "0,0,1", "0,1", "0,1,9"]},
    ),
    "explain?topic=neuron": (
        LOOK,
        {
            "run": ["nobody"], "kind": ["sideways"], "layer": ["abc", "99"], "head": ["abc", "99"],
            "query": ["-1", "99"], "key": ["99"],
        },
    ),
    "catalogue": (
        {"model": "transformer-tiny"},
        {
            "model": ["nobody", "transformer-huge"], "costs": ["nobody"], "family": ["abc"], "task": ["abc"],
            "sort": ["abc"], "what": ["abc"],
        },
    ),
    "runs": (
        {},
        {
            "runs": ["nobody"], "show": ["abc"], "over": ["abc", "toString"], "smooth": ["abc", "2", "-1"],
            "log": ["yes"], "sample": ["nobody"],
        },
    ),
    "nowhere": ({}, {"layer": ["abc"]}),
}  # fmt: skip
CASES = [(page, name, values) for page, (_, wrong) in PAGES.items() for name, values in wrong.items()]


@pytest.fixture
def mistakes(page: Page):
    """What scripts of the page say went wrong; refused requests are the server's to tell."""
    found: list[str] = []

    def hear(message) -> None:
        if message.type == "error" and "Failed to load resource" not in message.text:
            found.append(message.text)

    def fail(error) -> None:
        found.append(str(error))

    page.on("console", hear)
    page.on("pageerror", fail)
    yield found
    page.remove_listener("console", hear)
    page.remove_listener("pageerror", fail)


def shown(page: Page, studio, view: str, state: dict[str, str]) -> None:
    """Go to an address and wait until its page is drawn, or says why not."""
    if not page.url.startswith(studio.url):
        page.goto(studio.url)
    page.evaluate(
        """(hash) => {
            document.getElementById("view").removeAttribute("data-ready");
            document.getElementById("view").replaceChildren();
            history.replaceState(null, "", hash);
            dispatchEvent(new Event("hashchange"));
        }""",
        f"#/{view}{'&' if '?' in view else '?'}{urlencode(state)}",
    )
    expect(page.locator("main[data-ready]")).to_have_count(1, timeout=60_000)


def state_of(page: Page) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(page.url.partition("?")[2]).items()}


@pytest.mark.parametrize(("view", "name", "values"), CASES, ids=[f"{view}-{name}" for view, name, _ in CASES])
def test_errors_in_a_url_are_reported(page, studio, mistakes, view, name, values):
    for value in values:
        shown(page, studio, view, {**PAGES[view][0], name: value})
        told = page.locator("#address, main [role=alert]").filter(has_text=re.compile(r"\w"))
        expect(told.first).to_be_visible()
        sentences = " ".join(told.all_inner_texts())
        assert mistakes == [], value
        assert " " in sentences and not re.search(r"undefined|could not be loaded|Cannot|Error", sentences)


@pytest.mark.parametrize("view", [view for view in PAGES if view != "nowhere"])
def test_a_valid_url_is_not_changed(page, studio, mistakes, view):
    shown(page, studio, view, PAGES[view][0])
    expect(page.locator("#address")).to_be_empty()
    expect(page.locator("main")).not_to_have_attribute("data-ready", "problem")
    assert mistakes == []


def test_a_report_on_the_url_disappears_with_the_next_choice(page, studio):
    shown(page, studio, "look", {**LOOK, "layer": "abc"})
    expect(page.locator("#address")).to_contain_text("layer must be a whole number, 0 or larger")
    expect(page.locator("main")).to_have_attribute("data-ready", "look")
    page.get_by_role("button", name="Matrix").click()
    expect(page.locator("#address")).to_be_empty()


# page -> a button of its figure
FIGURES = {
    "look": "Matrix",
    "step": "All steps",
    "intervene": "hide a, token 1",
    "explain?topic=heads": "encoder",
    "explain?topic=neuron": "encoder",
}


@pytest.mark.parametrize("view", FIGURES)
def test_a_permalink_has_the_state_of_the_view_not_of_the_form(page, studio, view):
    shown(page, studio, view, LOOK)
    other = "<b>x" if "neuron" in view else "align"  # whose scores are no products of queries and keys
    page.get_by_label("Run").select_option(other)
    page.locator("form textarea").fill("hh")
    if (target := page.locator("form input[placeholder^='the model']")).is_visible():
        target.fill("h")
    before = page.url
    page.get_by_role("button", name=FIGURES[view], exact=True).first.click()
    page.wait_for_function("(before) => location.href !== before", arg=before)
    expect(page.locator("main[data-ready]")).to_have_count(1, timeout=60_000)
    kept = PAGES[view][0]
    assert {name: state_of(page)[name] for name in kept} == kept
    page.get_by_role("button", name={"step": "Start", "intervene": "Score"}.get(view, "Look"), exact=True).click()
    page.wait_for_function("() => location.hash.includes('text=hh')")
    assert state_of(page)["run"] == other


def test_a_step_continues_the_text_in_view(page, studio):
    shown(page, studio, "step", WROTE)
    page.get_by_label("Run").select_option("align")
    page.locator("form textarea").fill("hh")
    page.locator("section[aria-label='Next token'] svg [role=button]").first.click()
    page.wait_for_function("() => location.hash.includes('tokens=')")
    assert state_of(page)["run"] == "reverse" and state_of(page)["text"] == "abc"


def test_a_permalink_of_an_order_names_its_words(page, studio):
    shown(page, studio, "explain?topic=order", {"text": "one two three"})
    page.get_by_label("Words (2 to 12)").fill("four five")
    page.get_by_role("button", name="with positions", exact=True).click()
    page.wait_for_function("() => location.hash.includes('positions=1')")
    assert state_of(page)["text"] == "one two three"


def test_a_permalink_of_an_image_names_its_run(page, studio, tmp_path):
    Image.fromarray(np.eye(8, dtype=np.uint8) * 255).save(tmp_path / "x.png")
    shown(page, studio, "look", {"run": "seen", "layer": "99", "heads": "77"})
    page.get_by_label("Image", exact=True).set_input_files(tmp_path / "x.png")
    expect(page.locator("main")).to_have_attribute("data-ready", "image", timeout=60_000)
    page.get_by_label("Run").select_option("reverse")
    page.get_by_label("Layer", exact=True).select_option("0")
    page.wait_for_function("() => location.hash.includes('layer=0')")
    assert state_of(page)["run"] == "seen"
