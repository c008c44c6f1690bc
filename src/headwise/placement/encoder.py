"""The graphs of a run, in the place of a vocabulary."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from headwise.placement.config import Graphs
from headwise.text.base import TextlessEncoder
from headwise.text.normalise import PLAIN, Normaliser

Known = tuple[str, int]  # key and number of nodes of a graph on its cluster


@dataclass(frozen=True)
class GraphEncoder(TextlessEncoder):
    """The graphs that a run places: names, and what tells them apart."""

    kind: ClassVar[str] = "graphs"
    refusal: ClassVar[str] = "this run places operators and reads no texts; use `headwise evaluate` or `headwise place`"
    names: tuple[str, ...]
    graphs: tuple[Known, ...]
    devices: int  # the largest number of them
    normalise: Normaliser = PLAIN  # of texts: unused
    vocabulary: list[str] = field(default_factory=list, compare=False)  # empty: there are no tokens

    @classmethod
    def from_graphs(cls, *parts: Graphs) -> GraphEncoder:
        known = {each.key: each for graphs in parts for each in graphs}
        names = tuple(each.graph.name for each in known.values())
        sizes = tuple((key, len(each.graph)) for key, each in known.items())
        return cls(names, sizes, max(each.devices for each in known.values()))

    def to_json(self) -> dict[str, Any]:
        return {"names": self.names, "graphs": self.graphs, "devices": self.devices}

    @classmethod
    def from_json(cls, data: dict[str, Any], normalise: Normaliser) -> GraphEncoder:
        graphs = tuple((str(key), int(nodes)) for key, nodes in data["graphs"])
        return cls(tuple(map(str, data["names"])), graphs, int(data["devices"]), normalise)
