"""Every parameter count in README.md and docs/ is that of the assembled model. (docs/catalogue.md is generated:
tests/models/test_index.py.)"""

import re
from functools import cache
from pathlib import Path

import pytest

from headwise.blocks.stack import count_parameters
from headwise.catalog import CATALOG, names
from headwise.models.build import build

ROOT = Path(__file__).parents[1]
COUNT = r"\d{1,3}(?:,\d{3}){2,}"
STATED = [  # a name, and its count behind it
    re.compile(rf"headwise show ([\w.-]+) +# ({COUNT}) parameters"),
    re.compile(rf"\| `([\w.-]+)`[^|]*\| ({COUNT})"),
    re.compile(rf"`([\w.-]+)`[^.`]*?({COUNT}) parameters"),
]


@cache
def counted(name: str) -> int:
    return count_parameters(build(name, device="meta"))


def stated() -> list[tuple[str, str, int]]:
    """(page, name, count) for each sentence of the documents that counts a model of the catalogue."""
    known = {*names(), *CATALOG}
    return [
        (path.name, name, int(count.replace(",", "")))
        for path in sorted([ROOT / "README.md", *ROOT.glob("docs/*.md")])
        for pattern in STATED
        for name, count in pattern.findall(path.read_text())
        if name in known
    ]


@pytest.mark.parametrize(("page", "name", "count"), stated())
def test_counts_in_the_documents(page, name, count):
    assert counted(name) == count


def test_counts_are_looked_for_where_they_are():
    pages = {page for page, _, _ in stated()}
    assert {"experts.md", "mixers.md", "vision-models.md"} <= pages and len(stated()) >= 12
