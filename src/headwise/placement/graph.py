"""Operator graphs (dataflow graphs) and their files.

A file is JSON: `format`, `version`, `name`, `source` (where the numbers come from), `devices` (how many it was
published with; 0: unknown) and `nodes`, each with `id`, `op`, `flops` of a forward pass, `output_bytes`,
`parameter_bytes`, `saved_bytes` (what it keeps for its own backward pass besides its output) and `inputs`, the ids of
the nodes whose outputs it reads. docs/placing.md describes it.

Letters: N nodes, E edges.
"""

from __future__ import annotations

import hashlib
import heapq
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from headwise.errors import UserError
from headwise.utils.files import read_json, write

FORMAT, VERSION = "headwise-operator-graph", 1
MAX_NODES, MAX_EDGES = 20_000, 200_000
MAX_NUMBER = 2**60  # FLOPs or bytes of one node
SIZES = ("flops", "output_bytes", "parameter_bytes", "saved_bytes")


@dataclass(frozen=True)
class Node:
    """An operator: what it computes, what that costs in a forward pass, and whose outputs it reads."""

    id: str
    op: str
    flops: int = 0
    output_bytes: int = 0
    parameter_bytes: int = 0
    saved_bytes: int = 0
    inputs: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class OperatorGraph:
    """An operator graph: operators in topological order, and which outputs they read."""

    name: str
    nodes: tuple[Node, ...]
    source: str = ""
    devices: int = 0  # that it was published with; 0: unknown

    @classmethod
    def from_nodes(cls, name: str, nodes: Iterable[Node], source: str = "", devices: int = 0) -> OperatorGraph:
        """Check the nodes and sort them topologically; those that can go first keep their order."""
        return cls(name, sort_nodes(name, list(nodes)), source, devices)

    def __len__(self) -> int:
        return len(self.nodes)

    @cached_property
    def numbers(self) -> Mapping[str, int]:
        """Places of the nodes by id."""
        return {node.id: number for number, node in enumerate(self.nodes)}

    @cached_property
    def edges(self) -> np.ndarray:
        """Producer and consumer of each edge, (E, 2)."""
        pairs = [(self.numbers[name], number) for number, node in enumerate(self.nodes) for name in node.inputs]
        return np.array(pairs, np.int64).reshape(-1, 2)

    def get_sizes(self, key: str) -> np.ndarray:
        """One of `SIZES` of all nodes, (N,)."""
        return np.array([getattr(node, key) for node in self.nodes], float)

    @cached_property
    def digest(self) -> str:
        """A hash of what a placement depends on: costs, sizes and edges, not names."""
        rows = [
            [*(getattr(node, key) for key in SIZES), sorted(map(self.numbers.get, node.inputs))] for node in self.nodes
        ]
        return hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:16]

    def to_json(self) -> str:
        """The file's text, one node a line."""
        head = {"format": FORMAT, "version": VERSION, "name": self.name, "source": self.source, "devices": self.devices}
        lines = ",\n".join(json.dumps(vars(node) | {"inputs": list(node.inputs)}) for node in self.nodes)
        return f'{json.dumps(head, indent=1)[:-2]},\n "nodes": [\n{lines}\n]}}\n'

    def save(self, path: Path) -> Path:
        return write(path, self.to_json())


def sort_nodes(name: str, nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Topological order; refuses repeated ids, inputs that do not exist, and cycles."""
    by_id: dict[str, Node] = {}
    for node in nodes:
        if node.id in by_id:
            raise UserError(f"{name}: two nodes have the id '{node.id}'; give each its own")
        by_id[node.id] = node
    missing, readers = dict[str, int](), {key: list[str]() for key in by_id}
    for node in nodes:
        missing[node.id] = len(node.inputs)
        for source in node.inputs:
            if source not in by_id:
                raise UserError(f"{name}: node '{node.id}' reads '{source}', which is no node; add it or leave it out")
            readers[source].append(node.id)
    place = {node.id: number for number, node in enumerate(nodes)}
    ready = [place[key] for key, count in missing.items() if not count]
    heapq.heapify(ready)
    order = list[Node]()
    while ready:
        node = nodes[heapq.heappop(ready)]
        order.append(node)
        for reader in readers[node.id]:
            missing[reader] -= 1
            if not missing[reader]:
                heapq.heappush(ready, place[reader])
    if len(order) < len(nodes):
        raise UserError(
            f"{name}: has a cycle, {find_cycle(by_id, missing)}; operators of a step cannot wait for themselves"
        )
    return tuple(order)


def find_cycle(nodes: Mapping[str, Node], missing: Mapping[str, int]) -> str:
    """The ids of one cycle among the nodes that could not be sorted: going back along inputs, some node repeats."""
    path = [next(key for key, count in missing.items() if count)]
    while path.count(path[-1]) < 2:
        path.append(next(source for source in nodes[path[-1]].inputs if missing[source]))
    cycle = path[path.index(path[-1]) :][::-1]
    shown = cycle if len(cycle) <= 6 else [*cycle[:3], "...", cycle[-1]]
    return " -> ".join(shown)


def read_graph(path: Path) -> OperatorGraph:
    """Read a graph file of anybody's."""
    try:
        data = read_json(path)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); name a graph file") from None
    except ValueError:
        raise UserError(f"{path}: is no JSON; name a graph file, as docs/placing.md describes it") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise UserError(f'{path}: is no operator graph, which has "format": "{FORMAT}"; see docs/placing.md')
    if data.get("version") != VERSION:
        raise UserError(f"{path}: has version {data.get('version')!r}, and {VERSION} can be read; write it anew")
    nodes, devices = data.get("nodes"), data.get("devices", 0)
    if not isinstance(nodes, list) or not 1 <= len(nodes) <= MAX_NODES:
        raise UserError(f"{path}: nodes: must be a list of 1 to {MAX_NODES:,} nodes; write each as an object")
    if not is_count(devices) or devices > 1024:
        raise UserError(f"{path}: devices: must be a number from 0 to 1024; correct it")
    parsed = [parse_node(node, f"{path}: node {number}") for number, node in enumerate(nodes, 1)]
    if sum(len(node.inputs) for node in parsed) > MAX_EDGES:
        raise UserError(f"{path}: has more than {MAX_EDGES:,} inputs in all; fuse its nodes")
    name, source = (str(data.get(key, ""))[:200] for key in ("name", "source"))
    return OperatorGraph(name or path.stem, sort_nodes(str(path), parsed), source, devices)


def parse_node(data: Any, place: str) -> Node:
    """A node of a file, with everything checked."""
    if not isinstance(data, dict):
        raise UserError(f"{place}: is no object; write its id, op, sizes and inputs")
    if unknown := set(data) - {"id", "op", "inputs", *SIZES}:
        raise UserError(f"{place}: '{min(unknown)}' is not known; a node has id, op, {', '.join(SIZES)} and inputs")
    name, op, inputs = data.get("id"), data.get("op", ""), data.get("inputs", [])
    if not isinstance(name, str) or not 0 < len(name) <= 200 or not name.isprintable():
        raise UserError(f"{place}: id: must be a text of 1 to 200 characters; give it one")
    if not isinstance(op, str) or len(op) > 200 or not op.isprintable():
        raise UserError(f"{place} ('{name}'): op: must be a text of at most 200 characters; name the operator")
    if not isinstance(inputs, list) or not all(isinstance(each, str) for each in inputs):
        raise UserError(f"{place} ('{name}'): inputs: must be a list of ids; correct it")
    sizes = {key: data.get(key, 0) for key in SIZES}
    for key, value in sizes.items():
        if not is_count(value) or value > MAX_NUMBER:
            raise UserError(
                f"{place} ('{name}'): {key}: must be a whole number from 0 to 2^60, not {value!r}; correct it"
            )
    return Node(name, op, **sizes, inputs=tuple(dict.fromkeys(inputs)))


def is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
