"""Every parameter count in README.md and docs/ is the one that `headwise list` takes from the assembled model."""

import re
from functools import cache
from pathlib import Path

import pytest

from headwise.blocks.stack import parameters
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
    return parameters(build(name, device="meta"))


def rows() -> list[tuple[str, str]]:
    """Name and sizes of each model in README's table; a row with several names separates their sizes by semicolons."""
    found = []
    for line in (line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith("| `")):
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        models, sizes = re.findall(r"`([\w-]+)`", cells[0]), cells[2].split("; ")
        found += list(zip(models, sizes if len(models) == len(sizes) else [cells[2]] * len(models), strict=True))
    return found


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


def test_the_table_of_the_readme_has_every_model():
    assert [name for name, _ in rows()] == list(dict.fromkeys(name for name, _ in rows()))
    assert {name for name, _ in rows()} == set(CATALOG)


@pytest.mark.parametrize(("name", "sizes"), rows())
def test_counts_in_the_table_of_the_readme(name, sizes):
    for item in sizes.split(" · "):
        told = re.fullmatch(rf"(?:([\w.-]+) )?({COUNT})(?:, plain and distilled \(({COUNT})\))?", item)
        if told is None:
            assert not re.search(COUNT, item), item
            continue
        size, count, distilled = told.groups()
        assert f"{counted(f'{name}-{size}' if size else name):,}" == count
        if distilled:
            assert f"{counted(f'{name}-{size}-distilled'):,}" == distilled


@pytest.mark.parametrize(("page", "name", "count"), stated())
def test_counts_in_the_documents(page, name, count):
    assert counted(name) == count


def test_counts_are_looked_for_where_they_are():
    pages = {page for page, _, _ in stated()}
    assert {"experts.md", "mixers.md", "vision-models.md"} <= pages and len(stated()) >= 12
