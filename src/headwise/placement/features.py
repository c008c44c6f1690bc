"""What a policy reads of a graph: the kind of each operator, its costs relative to the step, and its neighbours.

Letters: N nodes, F numbers, E edges in both directions.
"""

from __future__ import annotations

from typing import NamedTuple
from zlib import crc32

import numpy as np

from headwise.placement.simulator import Simulator

KINDS = 64  # operators are hashed by name
WAVES = 5  # sines and cosines of the place of a node in topological order
NUMBERS = 7 + 2 * WAVES


class Features(NamedTuple):
    """A graph on a cluster as arrays."""

    kinds: np.ndarray  # (N,)
    numbers: np.ndarray  # (N, F)
    edges: np.ndarray  # (2, E) from, to
    devices: int


def describe_graph(simulator: Simulator) -> Features:
    """The features of a graph: costs relative to the mean time of a node, standardised over the graph; and waves of the
    node's place, so that like nodes can be told apart. They are features of nodes; attention has no positions."""
    graph, step, cluster = simulator.graph, simulator.step, simulator.cluster
    nodes, mean = len(graph), simulator.serial / len(graph)
    seconds = np.bincount(step.nodes, weights=step.seconds, minlength=nodes)
    sending = cluster.latency + graph.get_sizes("output_bytes") / cluster.bandwidth
    held = simulator.weights + graph.get_sizes("output_bytes") + graph.get_sizes("saved_bytes")
    received, given = (np.bincount(side, minlength=nodes) for side in (graph.edges[:, 1], graph.edges[:, 0]))
    numbers = np.column_stack(
        [
            np.log1p(seconds / mean),
            np.log1p(sending / mean),
            np.log1p(100 * simulator.weights / cluster.memory),
            np.log1p(100 * held / cluster.memory),
            np.log1p(received),
            np.log1p(given),
            np.cumsum(seconds) / simulator.serial,
        ]
    )
    numbers = (numbers - numbers.mean(0)) / (numbers.std(0) + 1e-6)
    angles = np.pi * np.arange(nodes)[:, None] / nodes * 2.0 ** np.arange(WAVES)
    numbers = np.concatenate([numbers, np.sin(angles), np.cos(angles)], axis=1)
    kinds = np.array([crc32(node.op.encode()) % KINDS for node in graph.nodes])
    edges = np.concatenate([graph.edges, graph.edges[:, ::-1]]).T
    return Features(kinds, numbers.astype(np.float32), np.ascontiguousarray(edges), simulator.devices)
