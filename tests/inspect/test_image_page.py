"""The page of an image in a real browser, opened from a file."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Page, expect

from headwise import UserError
from headwise.inspect import image_page
from headwise.inspect.image_inspection import ImageInspection

PICTURE = Image.fromarray(np.random.default_rng(0).integers(0, 256, (16, 16), dtype=np.uint8))
SCRIPT = "</script><script>document.title='owned'</script>"


def test_hovering_a_patch_shows_its_attention(page: Page, build_image_run, tmp_path: Path) -> None:
    inspection = ImageInspection(build_image_run("vit-tiny"), PICTURE)
    file = tmp_path / "x.html"
    file.write_text(image_page.render_page(inspection, f"cat {SCRIPT}"), encoding="utf-8")
    page.mouse.move(0, 0)
    page.goto(file.as_uri())
    reading = page.locator("#reading")
    expect(reading).to_contain_text("“the class token” attends most to")
    assert page.title() == f"cat {SCRIPT}" and page.locator("#heads button").count() == 4

    page.locator("#map").hover(position={"x": 460 * 0.6, "y": 460 * 0.9})  # row 4, column 3
    weights = inspection.attentions[1].weights[0].mean(0)[1 + 3 * 4 + 2]
    row, column = divmod(int(weights[1:].argmax()), 4)
    expect(reading).to_have_text(
        f"The patch in row 4, column 3 attends most to row {row + 1}, column {column + 1} "
        f"with weight {weights[1:].max():.4f}; {100 * weights[0]:.0f} % go to class tokens"
    )
    page.mouse.move(0, 0)
    expect(reading).to_contain_text("“the class token”")

    page.locator("#layer").select_option(index=0)
    page.get_by_role("button", name="head 2").click()
    page.locator("#map").press("ArrowRight")
    weights = inspection.attentions[0].weights[0, 1, 1 + 1]
    expect(reading).to_contain_text("The patch in row 1, column 2")
    expect(reading).to_contain_text(f"with weight {weights[1:].max():.4f}")


def test_latents_are_selected_by_name(page: Page, build_image_run, tmp_path: Path) -> None:
    inspection = ImageInspection(build_image_run("perceiver-image-tiny"), PICTURE)
    file = tmp_path / "x.html"
    file.write_text(image_page.render_page(inspection, "latents"), encoding="utf-8")
    page.goto(file.as_uri())
    page.locator("#query").select_option(label="latent 5")
    expect(page.locator("#reading")).to_contain_text("“latent 5” attends most to row")


def test_a_page_too_large_for_a_browser_is_refused(build_image_run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_page, "MAX_WEIGHTS", 100)
    with pytest.raises(UserError, match="choose one --layer"):
        image_page.render_page(ImageInspection(build_image_run("vit-tiny"), PICTURE), "cat")
