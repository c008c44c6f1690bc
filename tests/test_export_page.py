"""The table of docs/export.md: every model at every target (`make test-export`)."""

import re
from pathlib import Path

import pytest

from headwise.testing.exports import TARGETS, list_models, try_exports

PAGE = (Path(__file__).parents[1] / "docs/export.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `([\w.-]+)` \| ([\w-]+) \|((?: (?:yes|no) \|)+)$", PAGE, re.MULTILINE)


def test_the_table_has_models_of_the_catalogue() -> None:
    assert ROWS and {(name, task) for name, task, _ in ROWS} <= set(list_models())
    assert all(cells.count("|") == len(TARGETS) for *_, cells in ROWS)


@pytest.mark.export
@pytest.mark.parametrize(("name", "task", "cells"), ROWS)
def test_every_cell(name: str, task: str, cells: str) -> None:
    reasons = try_exports(name, task)
    assert dict(zip(TARGETS, cells.strip(" |").split(" | "), strict=True)) == {
        target: "no" if reason else "yes" for target, reason in reasons.items()
    }, reasons
