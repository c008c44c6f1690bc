"""The glossary is true: every path and symbol exists, and the term stands in the first line of its docstring."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (ROOT / "docs" / "glossary.md").read_text("utf-8").splitlines()
    if line.startswith("|") and not line.startswith(("|---", "| term"))
]


def first_line(path: str, symbol: str) -> str:
    """The first line of the docstring of a function, class or method."""
    node: ast.AST = ast.parse((ROOT / "src" / "headwise" / path).read_text("utf-8"))
    for name in symbol.split("."):
        assert isinstance(node, ast.Module | ast.ClassDef)
        definitions = [item for item in node.body if isinstance(item, ast.ClassDef | ast.FunctionDef)]
        matches = [item for item in definitions if item.name == name]
        assert matches, f"{path} has no {symbol}"
        node = matches[0]
    assert isinstance(node, ast.ClassDef | ast.FunctionDef)
    return (ast.get_docstring(node) or "").split("\n")[0]


def test_there_are_enough_terms_and_each_has_one_row() -> None:
    terms = [term.lower() for term, *_ in ROWS]
    assert len(terms) >= 110 and len(set(terms)) == len(terms)


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_a_term_is_found_where_the_glossary_says(row: list[str]) -> None:
    term, *_, home = row
    path, symbol = re.fullmatch(r"`([\w/]+\.py):([\w.]+)`", home).groups()  # type: ignore[union-attr]
    line = first_line(path, symbol)
    assert term.lower() in line.lower(), f"{path}:{symbol} begins: {line}"
