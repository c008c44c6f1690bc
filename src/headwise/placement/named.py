"""The graph files that come with Headwise, by name: those of Zhou et al. 2020, table 1, with its figures."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from headwise.errors import UserError, nearest
from headwise.placement.graph import OperatorGraph, read_graph

FOLDER = Path(__file__).parent / "graphs"


def list_graphs() -> list[str]:
    return sorted(file.stem for file in FOLDER.glob("*.json"))


@cache
def load_named(name: str) -> OperatorGraph:
    """A graph file of Headwise."""
    if name not in list_graphs():
        raise UserError(f"{name}: there is no graph of that name; {nearest(name, list_graphs())}")
    return read_graph(FOLDER / f"{name}.json")
