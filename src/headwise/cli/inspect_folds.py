"""`headwise inspect` for runs that fold chains."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from headwise.cli.common import say
from headwise.errors import UserError

if TYPE_CHECKING:
    from headwise.inference.trained_model import TrainedModel
    from headwise.inspect.fold_inspection import FoldInspection
    from headwise.inspect.fold_views import AttentionChoice


def open_chain(loaded: TrainedModel, source: str, true: str) -> FoldInspection:
    """The chain to look at: of a file, or of the test split, by its number from 1."""
    from headwise.inspect.fold_inspection import FoldInspection, read_source, take_test_chain

    if not source or source.isdecimal():
        if true:
            raise UserError("--target: the true structure of a test chain is known; leave it out")
        return FoldInspection(loaded, take_test_chain(loaded, int(source or 1) - 1))
    return FoldInspection(loaded, read_source(Path(source), Path(true) if true else None))


def inspect_fold(
    inspection: FoldInspection, choice: AttentionChoice, view: str | None, out: Path | None, as_json: bool, run: str
) -> None:
    """Print or draw one view; by default, and for .html, write a page with all views."""
    from headwise.inspect.files import check_ending
    from headwise.inspect.fold_views import show

    title = f"{run}: {inspection.name}"
    as_page = out.suffix.lower() == ".html" if out else not (view or as_json)
    if as_page:
        _write_page(inspection, choice, view, out or Path("folding.html"), as_json, title)
        return
    view = view or "distances"
    out = out or (None if as_json else Path(f"{view}.png"))
    if out:
        check_ending(out, ".svg", ".png")
    shown = show(view, inspection, choice)
    if text := json.dumps(shown.to_json()) if as_json else shown.table():
        print(text)
    if out:
        say(f"picture: {shown.save(out, title)}")


def _write_page(
    inspection: FoldInspection, choice: AttentionChoice, view: str | None, out: Path, as_json: bool, title: str
) -> None:
    from headwise.inspect.fold_page import render_page
    from headwise.inspect.fold_views import AttentionChoice
    from headwise.utils.files import write

    if view or as_json or choice != AttentionChoice():
        raise UserError(
            f"{out}: a page has every view, layer and head; leave out options that select one, or write .svg or .png"
        )
    print(write(out, render_page(inspection, title)))
