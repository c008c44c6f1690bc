"""Minimum cut by METIS (Karypis and Kumar 1998, "A fast and high quality multilevel scheme for partitioning irregular
graphs"): parts of equal work between which few bytes flow. Knows neither order nor memory, as in GO's comparison."""

from __future__ import annotations

import numpy as np

from headwise.errors import UserError
from headwise.placement.simulator import Simulator
from headwise.utils.extras import needed_for

SCALE = 10_000  # weights are integers: the largest one
MAX_SEED = 2**31


def place_by_metis(simulator: Simulator, seed: int = 0) -> np.ndarray:
    """METIS: a part for each device, nodes weigh their seconds, edges their bytes."""
    graph, step = simulator.graph, simulator.step
    if simulator.devices == 1 or len(graph) == 1:
        return np.zeros(len(graph), int)
    seconds = np.bincount(step.nodes, weights=step.seconds, minlength=len(graph))
    return cut_graph(graph.edges, seconds, graph.get_sizes("output_bytes")[graph.edges[:, 0]], simulator.devices, seed)


def cut_graph(edges: np.ndarray, weights: np.ndarray, flows: np.ndarray, parts: int, seed: int = 0) -> np.ndarray:
    """Parts (N,) of a graph whose nodes have weights (N,) and whose edges (E, 2), in either direction, have flows."""
    with needed_for("the method 'metis'"):
        import pymetis
    neighbours: list[dict[int, float]] = [{} for _ in weights]
    for (one, two), flow in zip(edges.tolist(), flows.tolist(), strict=True):
        for a, b in ((one, two), (two, one)):
            neighbours[a][b] = neighbours[a].get(b, 0.0) + flow
    pointers = np.cumsum([0, *map(len, neighbours)])
    adjacent = [each for around in neighbours for each in around]
    try:
        _, membership = pymetis.part_graph(
            parts,
            adjacency=pymetis.CSRAdjacency(pointers.tolist(), adjacent),
            vweights=scale(weights).tolist(),
            eweights=scale(np.array([flow for around in neighbours for flow in around.values()])).tolist(),
            recursive=False,
            options=pymetis.Options(seed=seed % MAX_SEED),
        )
    except RuntimeError as error:
        raise UserError(f"METIS cannot divide this graph into {parts} parts ({error}); use fewer devices") from None
    return np.array(membership, int)


def scale(values: np.ndarray) -> np.ndarray:
    """Integers from 1, in proportion."""
    top = values.max(initial=0.0) or 1.0
    return np.maximum(np.round(SCALE * values / top), 1).astype(int)
