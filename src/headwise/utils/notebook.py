"""Notebooks: HTML for `_repr_html_`, and a progress display that is updated in place.

Values of low packages are rendered by higher ones, which are named here as strings and imported when a value is shown.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from html import escape
from importlib import import_module
from typing import Any

RENDERERS = {  # a kind of value -> the function that renders it as HTML
    "maps": "headwise.inspect.notebook:render_maps",
    "model": "headwise.models.notebook:render_model",
    "run": "headwise.runs.notebook:render_run",
}
TABLE = "border-collapse: collapse; font-variant-numeric: tabular-nums"
CELL = "padding: .15rem .7rem; text-align: {align}"


def render(kind: str, value: object) -> str:
    """Render a value as HTML; it stands alone, so that two of them in one notebook do not interfere."""
    module, _, function = RENDERERS[kind].partition(":")
    html: str = getattr(import_module(module), function)(value)
    return html


def render_table(heading: str, rows: Sequence[Sequence[str]], notes: Sequence[str] = ()) -> str:
    """An HTML table: the first row is the header, the first column the names; names ending with a star are bold.

    >>> "<b>a&lt;b *</b>" in render_table("t", [["name"], ["a<b *"]])
    True
    """
    header, *body = rows
    parts = [f'<div style="overflow-x: auto"><p style="margin: 0 0 .3rem"><b>{escape(heading)}</b></p>']
    parts.append(f'<table style="{TABLE}"><tr>')
    parts += [f'<th scope="col" style="{_align(number)}">{escape(cell)}</th>' for number, cell in enumerate(header)]
    for row in body:
        bold = bool(row) and row[0].endswith(" *")
        cells = (f"<b>{escape(cell)}</b>" if bold else escape(cell) for cell in row)
        parts.append("</tr><tr>")
        parts += [f'<td style="{_align(number)}{_wrap(number)}">{cell}</td>' for number, cell in enumerate(cells)]
    parts.append("</tr></table>")
    parts += [f'<p style="margin: .2rem 0; opacity: .75">{escape(note)}</p>' for note in notes]
    return "".join([*parts, "</div>"])


def _align(column: int) -> str:
    return CELL.format(align="left" if column == 0 else "right")


def _wrap(column: int) -> str:
    """Names may be broken into lines; a number and its interval stay together."""
    return "" if column == 0 else "; white-space: nowrap"


def render_frame(page: str, height: int) -> str:
    """A whole HTML page as a frame: its styles, ids and scripts stay inside."""
    style = f"width: 100%; height: {height}px; border: 0"
    return f'<iframe sandbox="allow-scripts" style="{style}" srcdoc="{escape(page, quote=True)}"></iframe>'


def in_notebook() -> bool:
    """Whether this process is a Jupyter kernel, whose output a notebook shows."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return shell is not None and hasattr(shell, "kernel")


class HtmlTree:
    """A mixin of models: a notebook shows the tree of modules."""

    def _repr_html_(self) -> str:
        return render("model", self)


class NotebookDisplay:
    """An output of the current cell that is replaced in place; needs no widgets."""

    def __init__(self) -> None:
        self.handle: Any = None

    def update(self, html: str) -> None:
        from IPython.display import HTML, display

        if self.handle is None:
            self.handle = display(HTML(html), display_id=True)
        else:
            self.handle.update(HTML(html))


def render_bar(share: float, text: str) -> str:
    """A progress bar with a text beside it."""
    bar = f'<progress value="{share:.4f}" max="1" style="width: 14rem; vertical-align: middle"></progress>'
    return f'<div style="font-family: monospace; white-space: pre">{bar} {share:4.0%}  {escape(text)}</div>'
