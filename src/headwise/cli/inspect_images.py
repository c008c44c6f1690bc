"""`headwise inspect` for runs that read images."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from headwise.cli.common import say
from headwise.errors import UserError

if TYPE_CHECKING:
    from headwise.inspect.image_inspection import ImageInspection


def inspect_image(scene: ImageInspection, view: str | None, out: Path | None, as_json: bool, title: str) -> None:
    """Print or draw one view; by default, and for .html, write a page with all views."""
    from headwise.inspect.files import check_ending
    from headwise.inspect.image_views import choose_default_view, show

    as_page = out.suffix.lower() == ".html" if out else not (view or as_json or scene.source is None)
    if as_page:
        _write_page(scene, view, out or Path("attention.html"), as_json, title)
        return
    view = view or (choose_default_view(scene.model) if scene.source is not None else "filters")
    out = out or (None if as_json else Path(f"{view}.png"))
    if out:
        check_ending(out, ".svg", ".png")
    shown = show(view, scene)
    if text := json.dumps(shown.to_json()) if as_json else shown.table():
        print(text)
    if out:
        say(f"picture: {shown.save(out, title)}")


def _write_page(scene: ImageInspection, view: str | None, out: Path, as_json: bool, title: str) -> None:
    from headwise.inspect.image_page import render_page
    from headwise.utils.files import write

    if view or as_json or scene.head or scene.at:
        raise UserError(
            f"{out}: a page has every view, head and patch; leave out options that select one, or write .svg or .png"
        )
    print(write(out, render_page(scene, title)))
