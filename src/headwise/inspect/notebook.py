"""Attention maps in a notebook: the interactive page in a frame."""

from __future__ import annotations

from headwise.inference.maps import Maps
from headwise.inspect.page import render_page
from headwise.utils.notebook import render_frame

CELL, MARGIN, LIMITS = 28, 330, (420, 900)  # pixels of the page: a row of the map, everything around it, the frame


def render_maps(maps: Maps) -> str:
    """Render the page in a frame that is as high as the map of the main kind needs."""
    title = " ".join(maps.source_tokens or maps.target_tokens)
    height = MARGIN + CELL * len(maps.rows(maps.main))
    return render_frame(render_page(maps, title), min(max(height, LIMITS[0]), LIMITS[1]))
