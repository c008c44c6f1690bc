"""Every page for everyone: controls have names, text stands out from its ground, nothing is wider than a telephone."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

import headwise.studio

PAGES = re.findall(
    r'(\w+): \["\w+", \(\) => import', (Path(headwise.studio.__file__).parent / "static" / "app.js").read_text("utf-8")
)

# What a screen reader would call each control, and of each text the contrast with what is painted behind it
# (WCAG 2.2, 1.4.3: at least 4.5). Answers those that fail.
FAILING = """() => {
  const shown = (node) => node.checkVisibility({ visibilityProperty: true, opacityProperty: true });
  const labels = (node) => [...(node.labels ?? [])].map((each) => each.textContent).join("");
  const named = (node) => (node.getAttribute("aria-label") || labels(node) || node.textContent || node.title).trim();
  const controls = [...document.querySelectorAll("button, a, input, select, textarea, [tabindex='0']")].filter(shown);
  const nameless = controls.filter((node) => !named(node)).map((node) => node.outerHTML.slice(0, 120));
  const channels = (colour) => [...colour.match(/[\\d.]+/g).map(Number), 1].slice(0, 4);
  const linear = (value) => (value <= 10.31475 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4);
  const light = ([red, green, blue]) => 0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue);
  const ground = (node) => {
    const rect = [...node.parentElement.children].find((each) => each.tagName === "rect" && node.tagName === "text");
    const fill = rect ? getComputedStyle(rect).fill : "none";
    if (fill.startsWith("rgb(")) return channels(fill);
    for (let each = node; each; each = each.parentElement) {
      const found = channels(getComputedStyle(each).backgroundColor);
      if (found[3] === 1) return found;
    }
    return [255, 255, 255];
  };
  const written = (node) => [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
  const texts = [...document.querySelectorAll("body *")].filter((node) => shown(node) && written(node));
  const faint = texts.filter((node) => !node.closest(".dim, [disabled]")).map((node) => {
    const style = getComputedStyle(node), ink = channels(node instanceof SVGElement ? style.fill : style.color);
    const [one, two] = [light(ink), light(ground(node))].sort((a, b) => b - a);
    return [(one + 0.05) / (two + 0.05), node.outerHTML.slice(0, 100)];
  }).filter(([contrast]) => contrast < 4.5);
  return { nameless, faint };
}"""


# What is drawn, not only the forms: where each is to be seen and what marks it as ready.
DRAWN = {
    "look?run=reverse&text=abcdefgh&pin=2": "look",
    "look?run=reverse&text=abcdefgh&view=matrix&kind=encoder": "look",
    "look?run=reverse&text=abcdefgh&view=model&kind=encoder": "look",
    "step?run=reverse&text=abcdefgh&tokens=5,6&beams=3": "step",
    "intervene?run=reverse&text=abc&target=abcdefghabcdefghabcdefghabcdefgh&hidden=1&off=cross.0.1": "intervene",
    "explain?topic=masks": "masks",
    "explain?topic=positions&kind=alibi": "positions",
    "explain?topic=heads&run=reverse&text=abcdefgh": "heads",
    "explain?topic=order&order=1,0,4,3,2": "order",
    "explain?topic=neuron&run=reverse&text=abcdefgh": "neuron",
    "catalogue?model=transformer-tiny": "model",
}


def turn(page, name):
    page.evaluate(f"location.hash = '#/{name}'")
    expect(page.locator(f'nav a[aria-current][href="#/{name}"]')).to_be_visible()
    expect(page.locator("main[data-ready]")).to_be_visible(timeout=60_000)


def test_drawings_fit_a_phone_screen(page, studio, visit):
    before = page.viewport_size
    page.set_viewport_size({"width": 400, "height": 800})
    page.emulate_media(reduced_motion="reduce")  # colours on their way from theme to theme are nobody's
    page.goto(studio.url)
    for address, ready in DRAWN.items():
        view, _, state = address.partition("?")
        visit(view, state, ready)
        assert page.evaluate("document.documentElement.scrollWidth") <= 400, address
        for theme in ("light", "dark"):
            page.evaluate(
                f"document.documentElement.dataset.theme = '{theme}'; dispatchEvent(new Event('themechange'))"
            )
            expect(page.locator("main[data-ready]")).to_be_visible()
            assert page.evaluate(FAILING) == {"nameless": [], "faint": []}, (address, theme)
    page.set_viewport_size(before)
    page.emulate_media(reduced_motion="no-preference")


@pytest.mark.parametrize(("theme", "width"), [("light", 1180), ("dark", 400)])
def test_controls_have_names_and_text_has_contrast(page, studio, theme, width):
    assert len(PAGES) >= 3
    before = page.viewport_size
    page.set_viewport_size({"width": width, "height": 800})
    page.goto("about:blank")
    page.goto(studio.url)
    page.evaluate(f"document.documentElement.dataset.theme = '{theme}'")
    for name in PAGES:
        turn(page, name)
        assert page.evaluate(FAILING) == {"nameless": [], "faint": []}, name
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
    page.set_viewport_size(before)
    page.evaluate("""() => {
      const button = document.createElement("button"), word = document.createElement("p");
      word.textContent = "faint";
      word.style.color = "#888888";
      word.style.background = "#999999";
      document.body.append(button, word);
    }""")
    seen = page.evaluate(FAILING)
    assert len(seen["nameless"]) == len(seen["faint"]) == 1
