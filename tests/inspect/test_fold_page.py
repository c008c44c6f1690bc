"""The page of a folded chain in a real browser, opened from a file."""

from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Page, expect

from headwise.inspect import fold_page
from headwise.inspect.fold_inspection import FoldInspection, take_test_chain

SCRIPT = "</script><script>document.title='owned'</script>"
PIXELS = "(canvas) => canvas.toDataURL()"


@pytest.fixture
def inspection(build_fold_run) -> FoldInspection:
    loaded = build_fold_run("alphafold2-tiny", "fold", clusters=4, extra=0)
    return FoldInspection(loaded, take_test_chain(loaded))


def test_the_page_shows_structure_pairs_and_attention(page: Page, inspection, tmp_path: Path) -> None:
    file = tmp_path / "x.html"
    file.write_text(fold_page.render_page(inspection, f"chain {SCRIPT}"), encoding="utf-8")
    page.mouse.move(0, 0)
    page.goto(file.as_uri())
    expect(page.locator("h1")).to_have_text(f"chain {SCRIPT}")
    assert page.title() == f"chain {SCRIPT}"

    trace = page.locator("#trace")
    before = trace.evaluate(PIXELS)
    trace.press("ArrowRight")
    assert trace.evaluate(PIXELS) != before
    trace.press("Home")
    assert trace.evaluate(PIXELS) == before

    names = [f"{letter}{number}" for number, letter in enumerate(inspection.sequence, 1)]
    page.locator("#pairs").select_option(label="true distance")
    for _ in range(3):
        page.locator("#pairs-map").press("ArrowRight")  # into the map, then along the first row
    value = round(float(inspection.true.distances[0, 2]), 2)
    expect(page.locator("#pairs-reading")).to_have_text(f"{names[0]} and {names[2]}: {value} Å")

    page.locator("#kind").select_option(label="triangle attention around the ending node")
    page.locator("#head").select_option(label="2")
    page.locator("#line").select_option(label=names[3])
    for _ in range(2):
        page.locator("#attention-map").press("ArrowDown")
    weight = np.rint(inspection.pictures.attention["ending"].layers[0][3, 1, 1, 0] * 10_000) / 10_000
    expect(page.locator("#attention-reading")).to_have_text(
        f"{names[1]} attends to {names[0]} with weight {weight:.4f}"
    )
    assert page.locator("#figures img").count() == 2  # confidence, and layers of the structure module


def test_pages_of_many_weights_have_means_alone(inspection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold_page, "MAX_WEIGHTS", 100)
    kinds = fold_page.build_page_data(inspection, "x")["attention"]
    assert all(kind["lines"] == [] and kind["line"] == "" for kind in kinds)
    means = np.array(kinds[0]["means"]) / fold_page.UNITS
    assert np.allclose(means[0], inspection.pictures.attention["rows"].layers[0].mean(0), atol=1e-4)
