"""A self-contained HTML page to explore what a model attends to in an image: no network, opens from a file."""

from __future__ import annotations

import re
from base64 import b64encode
from html import escape
from importlib import resources
from io import BytesIO
from typing import Any

from headwise.errors import UserError
from headwise.inspect.image_maps import Gaze, gazes
from headwise.inspect.image_queries import Asked, asked
from headwise.inspect.page import UNITS, embed
from headwise.inspect.panels import borders, canvas
from headwise.inspect.scene import Scene
from headwise.inspect.svg import visible

SIDE = 230.0  # of the image, at two pixels for each unit
MOST = 4_000_000  # weights that a browser shows without waiting


def page(scene: Scene, title: str) -> str:
    """The page as one HTML document: choose a layer and a head, point at a patch to see where it looks."""
    slots = {"TITLE": escape(visible(title)), "DATA": embed(data(scene, title))}
    template = resources.files("headwise.inspect").joinpath("image_page.html").read_text("utf-8")
    # one pass, so that a title which happens to read {{DATA}} stays a title
    return re.sub(r"\{\{(TITLE|DATA)\}\}", lambda match: slots[match[1]], template)


def data(scene: Scene, title: str) -> dict[str, Any]:
    """What the page's script reads."""
    those = asked(scene.model, scene)
    found = gazes(scene.model, those.call)
    if not found:
        raise UserError("this run's model has no attention to look at; inspect another run, or use --view filters")
    chosen = scene.numbered(found)
    weights = sum(gaze.weights[0].numel() for gaze in chosen.values())
    if weights > MOST:
        raise UserError(f"a page with {weights:,} weights is too large for browsers; choose one --layer, or a --view")
    looks = [look(gaze, number, those) for number, gaze in chosen.items()]
    return {"title": visible(title), "units": UNITS, "image": picture(scene), "looks": looks}


def look(gaze: Gaze, number: int, those: Asked) -> dict[str, Any]:
    """One attention: its heads' rows of weights, class tokens first, in units; who asks beside the patches, by name."""
    outside = gaze.asks is None and not gaze.by_marks
    rows = gaze.weights[0][:, list(those.names)] if outside else gaze.weights[0]  # (H, Q, T)
    return {
        "name": f"{number}: {'from outside' if outside else 'class attention' if gaze.by_marks else 'patches'}",
        "heads": (rows * UNITS).round().int().tolist(),
        "asks": gaze.asks,
        "names": [visible(name) for name in those.names.values()] if outside else [],
        "class_tokens": gaze.class_tokens,
        "grid": gaze.seen,
        "lines": [] if gaze.tiling is None else borders(gaze.tiling),
    }


def picture(scene: Scene) -> str:
    """What the model is given of the image, as an address that pages show."""
    from PIL import Image

    file = BytesIO()
    Image.fromarray(canvas(scene.image, SIDE)).save(file, "PNG", optimize=True)
    return f"data:image/png;base64,{b64encode(file.getvalue()).decode()}"
