"""The architecture page maps every package, and the files and functions that it names exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "headwise"
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
MAP, LIFE = (PAGE.split(f"## {title}\n")[1].split("\n## ")[0] for title in ("Packages", "Life of a batch"))


def test_every_package_is_on_the_map() -> None:
    rows = [line.split("|")[1] for line in MAP.splitlines() if line.startswith("| `")]
    mapped = {name.rstrip("/") for row in rows for name in re.findall(r"`([\w.]+/?)`", row)}
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert mapped == packages | {"errors.py", "catalog.py"}


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`([\w/]+\.py)`", MAP))))
def test_files_to_begin_with_exist(path: str) -> None:
    assert (PACKAGE / path).exists() or list(PACKAGE.glob(f"models/{path}"))


@pytest.mark.parametrize("home", sorted(set(re.findall(r"`([\w/]+\.py:[\w.]+)`", LIFE))))
def test_the_life_of_a_batch_names_what_exists(home: str) -> None:
    path, symbol = home.split(":")
    body: list[ast.stmt] = ast.parse((PACKAGE / path).read_text("utf-8")).body
    for name in symbol.split("."):
        found = [node for node in body if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name]
        assert found, f"{path} has no {symbol}"
        body = found[0].body
