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
from headwise.inspect.svg import visible

UNITS = 10_000  # weights travel as integers: four decimals, half the bytes of floats


def page(maps: Maps, title: str, note: str = "") -> str:
    """The page as one HTML document, with selectors for kind, layer and head."""
    slots = {"TITLE": escape(visible(title)), "DATA": embed(data(maps, title, note))}
    template = resources.files("headwise.inspect").joinpath("page.html").read_text("utf-8")
    # one pass, so that a title which happens to read {{DATA}} stays a title
    return re.sub(r"\{\{(TITLE|DATA)\}\}", lambda match: slots[match[1]], template)


def data(maps: Maps, title: str, note: str = "") -> dict[str, Any]:
    """What the page's script reads."""
    kinds = [
        {
            "name": kind,
            "rows": [visible(token) for token in maps.rows(kind)],
            "columns": [visible(token) for token in maps.columns(kind)],
            "weights": units(weights),
            **({"exact": units(maps.exact[kind])} if kind in maps.exact else {}),
        }
        for kind, weights in maps.weights.items()
    ]
    return {"title": visible(title), "note": visible(note), "units": UNITS, "kinds": kinds}


def units(weights: NDArray[np.floating]) -> list[list[Any]]:
    """Every map of every layer in integers; heads that are not there are left out, and so is an exact map."""
    return [
        [np.rint(each.astype(float) * UNITS).astype(int).tolist() for each in layer if not np.isnan(each).all()]
        for layer in weights
    ]


def embed(value: Any) -> str:
    """JSON that may stand inside a script element: no `<` can end it.

    >>> embed("</script>")
    '"\\\\u003c/script>"'
    """
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")
