"""A self-contained HTML page to explore attention maps: no network, no build step, opens from a file."""

from __future__ import annotations

import json
import re
from html import escape
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise.inference.maps import Maps
from headwise.inspect.svg import replace_controls

UNITS = 10_000  # weights are sent as integers of four decimals: half the bytes of floats


def render_page(maps: Maps, title: str, note: str = "") -> str:
    """Render the page as one HTML document with selectors for kind, layer and head."""
    slots = {"TITLE": escape(replace_controls(title)), "DATA": dump_json(build_page_data(maps, title, note))}
    template = resources.files("headwise.inspect").joinpath("page.html").read_text("utf-8")
    # one pass, so that a title which happens to read {{DATA}} stays a title
    return re.sub(r"\{\{(TITLE|DATA)\}\}", lambda match: slots[match[1]], template)


def build_page_data(maps: Maps, title: str, note: str = "") -> dict[str, Any]:
    """Build the data of the page's script."""
    kinds = [
        {
            "name": kind,
            "rows": [replace_controls(token) for token in maps.rows(kind)],
            "columns": [replace_controls(token) for token in maps.columns(kind)],
            "weights": to_units(weights),
            **({"exact": to_units(maps.exact[kind])} if kind in maps.exact else {}),
        }
        for kind, weights in maps.weights.items()
    ]
    return {"title": replace_controls(title), "note": replace_controls(note), "units": UNITS, "kinds": kinds}


def to_units(weights: NDArray[np.floating]) -> list[list[Any]]:
    """Convert the maps (L, H, Tq, Tk) to integers; heads that do not exist (NaN) are left out."""
    return [
        [np.rint(head.astype(float) * UNITS).astype(int).tolist() for head in layer if not np.isnan(head).all()]
        for layer in weights
    ]


def dump_json(value: Any) -> str:
    """Dump JSON for a script element: `<` is escaped, so that no value can close the element.

    >>> dump_json("</script>")
    '"\\\\u003c/script>"'
    """
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")
