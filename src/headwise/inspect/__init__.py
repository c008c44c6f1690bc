"""Interpretability: attention maps as pictures and pages."""

from headwise.inference.maps import Maps
from headwise.inspect.export import export
from headwise.inspect.files import save
from headwise.inspect.page import render_page
from headwise.inspect.pictures import compare_alignments, draw_alignment, draw_head_grid
from headwise.inspect.svg import Drawing

__all__ = [
    "Drawing",
    "Maps",
    "compare_alignments",
    "draw_alignment",
    "draw_head_grid",
    "export",
    "render_page",
    "save",
]
