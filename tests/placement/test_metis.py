"""METIS on graphs whose minimum cut is known."""

from __future__ import annotations

from itertools import combinations

import networkx
import numpy as np

from headwise.placement.cluster import Cluster
from headwise.placement.metis import cut_graph, place_by_metis
from headwise.placement.random_graphs import generate_graph
from headwise.placement.simulator import Simulator


def test_the_cut_is_the_minimum():
    """Cliques of equal size that one light edge joins; networkx gives the same cut."""
    graph = networkx.Graph()
    for first in (0, 8, 16):
        graph.add_edges_from(combinations(range(first, first + 8), 2), capacity=10)
    graph.add_edges_from([(3, 9), (12, 17)], capacity=1)
    edges = np.array(graph.edges)
    flows = np.array([graph.edges[tuple(edge)]["capacity"] for edge in edges], float)
    parts = cut_graph(edges, np.ones(24), flows, 3)
    assert [len(set(parts[first : first + 8].tolist())) for first in (0, 8, 16)] == [1, 1, 1]
    assert len(set(parts.tolist())) == 3
    value, _ = networkx.minimum_cut(graph, 0, 23)
    assert value == flows[parts[edges[:, 0]] != parts[edges[:, 1]]].min() == 1


def test_work_is_balanced():
    chain = np.column_stack([np.arange(29), np.arange(1, 30)])
    weights = np.array([1.0] * 15 + [3.0] * 15)
    parts = cut_graph(chain, weights, np.ones(29), 2)
    loads = np.bincount(parts, weights=weights)
    assert loads.max() <= 1.15 * loads.sum() / 2
    assert (parts[1:] != parts[:-1]).sum() <= 2  # a chain is cut once, or nearly


def test_every_device_has_a_part():
    simulator = Simulator(generate_graph(60, 0), Cluster(devices=4))
    placement = place_by_metis(simulator)
    assert set(placement.tolist()) == {0, 1, 2, 3}
    assert place_by_metis(Simulator(generate_graph(60, 0), Cluster(devices=1))).max() == 0
