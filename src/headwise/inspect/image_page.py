"""A self-contained HTML page of a model's attention maps over an image: no network, opens from a file."""

from __future__ import annotations

import re
from base64 import b64encode
from html import escape
from importlib import resources
from io import BytesIO
from typing import Any

from headwise.errors import UserError
from headwise.inspect.image_inspection import ImageInspection
from headwise.inspect.image_maps import ImageAttention, record_image_attention
from headwise.inspect.image_queries import ImageQueries, find_queries
from headwise.inspect.page import UNITS, dump_json
from headwise.inspect.panels import compute_window_borders, resize_for_tile
from headwise.inspect.svg import replace_controls

SIDE = 230.0  # width of the image, at two pixels per unit
MAX_WEIGHTS = 4_000_000  # more make a browser slow


def render_page(inspection: ImageInspection, title: str) -> str:
    """Render the page as one HTML document with selectors for layer, head and query."""
    slots = {"TITLE": escape(replace_controls(title)), "DATA": dump_json(build_page_data(inspection, title))}
    template = resources.files("headwise.inspect").joinpath("image_page.html").read_text("utf-8")
    # one pass, so that a title which happens to read {{DATA}} stays a title
    return re.sub(r"\{\{(TITLE|DATA)\}\}", lambda match: slots[match[1]], template)


def build_page_data(inspection: ImageInspection, title: str) -> dict[str, Any]:
    """Build the data of the page's script."""
    queries = find_queries(inspection.model, inspection)
    attentions = record_image_attention(inspection.model, queries.call)
    if not attentions:
        raise UserError("this run's model has no attention to look at; inspect another run, or use --view filters")
    selected = inspection.select_layers(attentions)
    count = sum(attention.weights[0].numel() for attention in selected.values())
    if count > MAX_WEIGHTS:
        raise UserError(f"a page with {count:,} weights is too large for browsers; choose one --layer, or a --view")
    layers = [attention_to_dict(attention, number, queries) for number, attention in selected.items()]
    return {"title": replace_controls(title), "units": UNITS, "image": encode_image(inspection), "layers": layers}


def attention_to_dict(attention: ImageAttention, number: int, queries: ImageQueries) -> dict[str, Any]:
    """Convert one layer for the page: rows of weights of each head, class tokens first, and the names of queries that
    are not patches."""
    cross = attention.is_cross_attention
    rows = attention.weights[0][:, list(queries.names)] if cross else attention.weights[0]  # (H, Q, T)
    kind = "cross-attention" if cross else "class attention" if attention.is_class_attention else "self-attention"
    return {
        "name": f"{number}: {kind}",
        "heads": (rows * UNITS).round().int().tolist(),
        "query_grid": attention.query_grid,
        "names": [replace_controls(name) for name in queries.names.values()] if cross else [],
        "class_tokens": attention.class_tokens,
        "grid": attention.key_grid,
        "lines": [] if attention.partition is None else compute_window_borders(attention.partition),
    }


def encode_image(inspection: ImageInspection) -> str:
    """Encode the part of the image that the model reads as a data URL."""
    from PIL import Image

    file = BytesIO()
    Image.fromarray(resize_for_tile(inspection.image, SIDE)).save(file, "PNG", optimize=True)
    return f"data:image/png;base64,{b64encode(file.getvalue()).decode()}"
