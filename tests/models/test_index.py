"""The index of the catalogue is what the models say, and listing them imports neither torch nor a model."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest

from headwise.blocks import tables
from headwise.catalog import CATALOG, HOMES, MODELS, names, read_index
from headwise.models.build import build_entry
from headwise.models.cost import build_tree, summarise
from headwise.models.index import build_index, render_page
from headwise.models.summary import Node, read_lines, read_summary


@pytest.fixture(scope="module")
def trees() -> dict[str, Node]:
    """The tree of every size, built once on the meta device."""
    sizes = [(entry, size, f"{entry.name}-{size}") for entry in CATALOG.values() for size in entry.sizes]
    return {name: build_tree(build_entry(entry, size, device="meta"), name) for entry, size, name in sizes}


def test_the_index_is_up_to_date(trees: dict[str, Node]) -> None:
    """`python -m headwise.models.index` writes it anew."""
    stored = json.loads(resources.files("headwise").joinpath("catalog.json").read_text("utf-8"))
    index = build_index({name: tree.parameters for name, tree in trees.items()})
    assert stored == index
    assert (Path(__file__).parents[2] / "docs" / "catalogue.md").read_text("utf-8") == render_page(index)


def test_trees_of_all_sizes_are_stored_as_they_are_built(trees: dict[str, Node]) -> None:
    """`python -m headwise.models.index` writes them anew."""
    stored = {name: read_summary(name) for name in names()}
    assert len(read_lines()) == len(stored)
    for entry in CATALOG.values():
        for size in entry.sizes:
            name = f"{entry.name}-{size}"
            summary = stored[name]
            assert summary.tree == trees[name]
            assert summary.name == name and (summary.cost is None) == (summary.tree.parameters == 0)
            if summary.cost is not None:
                assert summary.cost.parameters == read_index()[entry.name].sizes[size].parameters


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("ngram", "trigram"),
        ("transformer", "tiny"),
        ("gpt2", "small"),
        ("deberta", "tiny"),
        ("swin", "tiny"),
        ("gru", "tiny"),
    ],
)
def test_stored_costs_are_those_that_are_counted(name: str, size: str) -> None:
    """Of models of each kind; counting all takes minutes."""
    assert read_summary(f"{name}-{size}") == summarise(CATALOG[name], size)


def test_homes_are_named_like_their_entries() -> None:
    assert list(read_index()) == list(HOMES)
    for name, entry in CATALOG.items():
        assert entry.name == name and entry.config.model_fields["kind"].default == name
        assert MODELS[name] is entry.config


def test_every_kind_of_part_is_where_its_table_says() -> None:
    found = [table for table in vars(tables).values() if isinstance(table, tables.Table)]
    assert len(found) == 9
    for table in found:
        for kind in table.homes:
            assert table[kind].model_fields["kind"].default == kind


def test_names_are_known_without_torch() -> None:
    code = """
import sys
from headwise.blocks.tables import PARTS, POSITIONS
from headwise.catalog import MODELS, names, read_index
from headwise.config.base import Problems
assert "transformer-base" in names() and read_index()["gpt2"].sizes
for table, kind in ((PARTS, "preformer"), (POSITIONS, "rotry"), (MODELS, "transfromer")):
    try:
        table.parse({"kind": kind})
    except Problems as problem:
        assert "did you mean" in str(problem), problem
    else:
        raise AssertionError(kind)
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
