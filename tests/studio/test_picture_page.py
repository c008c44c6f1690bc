"""Looking at an image, in a real browser."""

import io
import json
import urllib.error
import urllib.request
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from playwright.sync_api import expect

from headwise.experiment.load import load
from headwise.inspect.image_maps import record_encoder_attention


@pytest.fixture(scope="module")
def picture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("picture") / "<i>.png"
    Image.fromarray(np.random.default_rng(1).integers(0, 255, (8, 8), dtype=np.uint8)).save(path)
    return path


def ask(studio, path: str, body: bytes | None = None) -> tuple[int, bytes]:
    kind = {"content-type": "application/octet-stream"} if body is not None else {}
    try:
        with urllib.request.urlopen(urllib.request.Request(f"{studio.url}api/picture{path}", body, kind)) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def test_an_image_is_classified_and_patches_are_queries(page, studio, runs, picture):
    page.goto("about:blank")
    page.goto(f"{studio.url}#/look?run=seen&layer=1&heads=2")
    expect(page.locator("main")).to_have_attribute("data-ready", "form")
    page.get_by_label("Image", exact=True).set_input_files(picture)
    expect(page.locator("main")).to_have_attribute("data-ready", "image", timeout=60_000)
    loaded = load(runs / "seen")
    (found,) = loaded.classify_images([picture])
    best = max(found, key=found.__getitem__)
    expect(page.locator("table.outcome tr").first).to_have_text(f"{best}{100 * found[best]:.1f} %")
    expect(page.locator(".tile")).to_have_count(5)  # four heads and rollout

    large = page.locator("svg.picture > g").first
    box = large.locator("image").bounding_box()
    spot = {"x": box["width"] * 0.4, "y": box["height"] * 0.9}  # of 4 x 4 patches: the last row, the second column
    large.click(position=spot)
    note = page.locator("section[aria-label=Attention] .note")
    expect(note).to_contain_text(
        "Attention from the patch in row 4, column 2"
    )  # drawn anew, under a pointer that rests
    with torch.no_grad():
        pixels = loaded.tokenisers.source
        attention = record_encoder_attention(loaded.model, pixels.normalise_images(pixels.read(picture)[None]))[1]
    page.mouse.move(box["x"] + 1, box["y"] + 1)
    weight = attention.heat_map((3, 1))[0, 2, 0, 0]
    expect(note).to_contain_text(f"the patch in row 4, column 2 attends to row 1, column 1 with weight {weight:.4f}")
    with page.expect_download() as waiting:
        page.get_by_role("button", name="HTML").click()
    assert "data:image/png" in Path(waiting.value.path()).read_text()


def large_png() -> bytes:
    """Few bytes that would become many."""
    file = io.BytesIO()
    Image.new("1", (20_000, 20_000)).save(file, "PNG")
    return file.getvalue()


def header(width: int, height: int) -> bytes:
    """An image with so many pixels, of which none follows."""
    file = io.BytesIO()
    Image.new("L", (1, 1)).save(file, "PNG")
    content = bytearray(file.getvalue())
    content[16:24] = width.to_bytes(4, "big") + height.to_bytes(4, "big")
    content[29:33] = zlib.crc32(content[12:29]).to_bytes(4, "big")
    return bytes(content)


@pytest.mark.parametrize("size", [(1, 400), (400, 1), (1, 1), (1, 65_535)])
@pytest.mark.parametrize("path", ["", "/page"])
def test_narrow_images_are_accepted(studio, path, size):
    file = io.BytesIO()
    Image.new("L", size, 128).save(file, "PNG")
    assert ask(studio, f"{path}?run=seen", file.getvalue())[0] == 200


@pytest.mark.parametrize(
    ("run", "body", "says"),
    [
        ("seen", b"no image", "is not an image"),
        ("seen", b"", "required"),
        ("seen", large_png(), "pixels"),
        ("seen", header(1, 80_000_000), "a side of more than 65,535 pixels"),
        ("seen", header(80_000_000, 1), "a side of more than 65,535 pixels"),
        ("nobody", b"x", "no run"),
    ],
)
def test_invalid_images_are_refused_in_one_sentence(studio, run, body, says):
    status, told = ask(studio, f"?run={run}", body)
    assert 400 <= status < 500 and says in json.loads(told)["error"]


def test_a_text_run_refuses_images(studio, picture):
    status, told = ask(studio, "?run=reverse", picture.read_bytes())
    assert status == 400 and "images" in json.loads(told)["error"]


def test_missing_layers_and_patches_are_refused(studio, picture):
    _, answer = ask(studio, "?run=seen", picture.read_bytes())
    look = json.loads(answer[4 : 4 + int.from_bytes(answer[:4], "little")])["name"]
    for question in (f"/{look}/9", f"/{look}/0?row=4&column=0", f"/{look}/0?query=0", "/forgotten/0"):
        assert ask(studio, question)[0] == 400, question


def test_attention_of_a_text_is_exported_as_html(page, studio):
    page.goto("about:blank")
    page.goto(f"{studio.url}#/look?run=reverse&text=ab&target=ba")
    expect(page.locator("main")).to_have_attribute("data-ready", "look", timeout=60_000)
    with page.expect_download() as waiting:
        page.get_by_role("button", name="HTML").click()
    text = Path(waiting.value.path()).read_text()
    assert "<title>ab</title>" in text and '"kinds"' in text
