"""Data configs of operator graphs: `[data]` with `kind = "graphs"`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import Field, model_validator

from headwise.data.config import Content, DataConfig
from headwise.errors import UserError
from headwise.placement.cluster import Cluster, format_bytes
from headwise.placement.graph import OperatorGraph, read_graph
from headwise.placement.named import load_named
from headwise.placement.random_graphs import generate_graph
from headwise.placement.simulator import Simulator


@dataclass(frozen=True, eq=False)
class Graphs:
    """Graphs on their clusters, each with its simulator."""

    simulators: tuple[Simulator, ...]

    def __len__(self) -> int:
        return len(self.simulators)

    def __getitem__(self, index: int) -> Simulator:
        return self.simulators[index]

    def __iter__(self) -> Iterator[Simulator]:
        return iter(self.simulators)

    def take(self, indices: Iterable[int]) -> Graphs:
        return Graphs(tuple(self.simulators[index] for index in indices))


class GraphSplits(NamedTuple):
    """Graphs to search and train on, those to validate with, those to evaluate, and the files that were read."""

    train: Graphs
    valid: Graphs
    test: Graphs
    files: tuple[Path, ...]


class GraphsConfig(DataConfig):
    """Operator graphs and the devices that they are placed on. `train`, `valid` and `test` are graph files, or names of
    graphs that come with Headwise; or `name` is one of these, or `random` graphs are generated. Without `valid` and
    `test`, the graphs of `train` are validated and evaluated: a placement is searched, not generalised."""

    content: ClassVar[Content] = "graphs"
    kind: Literal["graphs"] = "graphs"
    random: int = Field(0, ge=0)  # generated graphs, instead of files
    nodes: int = Field(40, ge=2, le=2000)  # of a generated graph
    seed: int = Field(0, ge=0)  # of the first generated graph
    cluster: Cluster = Cluster()
    memory_share: float = Field(0.0, ge=0)  # memory of a device, as a share of what one would need; 0: the cluster's
    backward: bool = True  # a training step; false: a forward pass alone

    @model_validator(mode="after")
    def _check_consistency(self) -> GraphsConfig:
        if sum((bool(self.name), bool(self.train), bool(self.random))) != 1:
            raise ValueError("give graphs in one way: `name`, `train` or `random`")
        return self

    def load(self) -> GraphSplits:
        files: list[Path] = []
        if self.random:
            train = [generate_graph(self.nodes, self.seed + number) for number in range(self.random)]
        else:
            train = [self._find(name, files) for name in (self.train or (self.name,))]
        first = Graphs(tuple(map(self.make_simulator, train)))
        valid, test = (
            Graphs(tuple(self.make_simulator(self._find(name, files)) for name in names)) if names else first
            for names in (self.valid, self.test)
        )
        return GraphSplits(first, valid, test, tuple(files))

    def _find(self, name: str, files: list[Path]) -> OperatorGraph:
        path = Path(self.root).expanduser() / Path(name).expanduser()
        if path.suffix != ".json":
            return load_named(name)
        files.append(path)
        return read_graph(path)

    def make_simulator(self, graph: OperatorGraph) -> Simulator:
        cluster = self.cluster
        if self.memory_share:
            one = Simulator(graph, cluster.replace(devices=1), self.backward)
            needed = float(one.simulate(np.zeros((1, len(graph)))).measure_memory().max())
            cluster = cluster.replace(memory=max(self.memory_share * needed, 1.0))
        simulator = Simulator(graph, cluster, self.backward)
        check_room(simulator)
        return simulator


def check_room(simulator: Simulator) -> None:
    """Refuse a graph that fits on no device, whatever the placement: its largest operator, or all parameters."""
    graph, cluster = simulator.graph, simulator.cluster
    alone = simulator.weights + graph.get_sizes("output_bytes") + graph.get_sizes("saved_bytes")
    largest, total = int(alone.argmax()), float(simulator.weights.sum())
    if alone[largest] > cluster.memory:
        raise UserError(
            f"{graph.name}: operator '{graph.nodes[largest].id}' needs {format_bytes(alone[largest])}, more than the "
            f"{format_bytes(cluster.memory)} of a device; give devices more memory, or the graph a smaller batch"
        )
    if total > cluster.memory * simulator.devices:
        raise UserError(
            f"{graph.name}: its parameters need {format_bytes(total)} with gradients and optimiser states, more than "
            f"{simulator.devices} x {format_bytes(cluster.memory)}; give more devices or more memory"
        )
