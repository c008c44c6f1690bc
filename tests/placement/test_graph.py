"""Operator graphs, their files, their fusion, and those of published architectures."""

from __future__ import annotations

import json

import numpy as np
import pytest

from headwise.config.base import validate
from headwise.errors import UserError
from headwise.placement.architectures import build_amoebanet, build_inception, build_wavenet
from headwise.placement.cluster import parse_bytes, parse_link
from headwise.placement.config import GraphsConfig
from headwise.placement.fuse import fuse
from headwise.placement.graph import SIZES, Node, OperatorGraph, read_graph
from headwise.placement.heuristics import cut_stretches
from headwise.placement.named import list_graphs, load_named
from headwise.placement.random_graphs import generate_graph


def node(name, *inputs, **sizes):
    return {"id": name, "op": "mm", "inputs": list(inputs), **sizes}


def file_of(tmp_path, *nodes, **changes):
    path = tmp_path / "graph.json"
    whole = {"format": "headwise-operator-graph", "version": 1, "name": "mine", "nodes": list(nodes), **changes}
    path.write_text(json.dumps(whole))
    return path


def test_a_file_gives_back_what_was_saved(tmp_path):
    graph = generate_graph(30, 3)
    again = read_graph(graph.save(tmp_path / "graph.json"))
    assert again.nodes == graph.nodes and again.digest == graph.digest and again.name == graph.name


def test_nodes_are_sorted_topologically(tmp_path):
    graph = read_graph(file_of(tmp_path, node("c", "b", "a"), node("b", "a"), node("a")))
    assert [each.id for each in graph.nodes] == ["a", "b", "c"]
    assert graph.edges.tolist() == [[0, 1], [1, 2], [0, 2]]


@pytest.mark.parametrize(
    ("nodes", "changes", "sentence"),
    [
        ([node("a", "c"), node("b", "a"), node("c", "b")], {}, "has a cycle, a -> b -> c -> a"),
        ([node("a", "a")], {}, "has a cycle, a -> a"),
        ([node("a"), node("a")], {}, "two nodes have the id 'a'"),
        ([node("a", "x")], {}, "reads 'x', which is no node"),
        ([node("a", flops=-1)], {}, "flops: must be a whole number"),
        ([node("a", flops=2**61)], {}, "flops: must be a whole number"),
        ([node("a", output_bytes=1.5)], {}, "output_bytes: must be"),
        ([node("a", size=3)], {}, "'size' is not known"),
        ([node("")], {}, "id: must be a text"),
        ([3], {}, "is no object"),
        ([], {}, "nodes: must be a list of 1 to"),
        ([node("a")], {"format": "other"}, "is no operator graph"),
        ([node("a")], {"version": 2}, "has version 2"),
        ([node("a")], {"devices": -1}, "devices: must be a number"),
    ],
)
def test_a_wrong_file_is_refused_in_one_sentence(tmp_path, nodes, changes, sentence):
    with pytest.raises(UserError, match=sentence) as refusal:
        read_graph(file_of(tmp_path, *nodes, **changes))
    assert "\n" not in str(refusal.value)


def test_no_file_and_no_json(tmp_path):
    with pytest.raises(UserError, match="cannot be read"):
        read_graph(tmp_path / "none.json")
    (tmp_path / "text.json").write_text("[")
    with pytest.raises(UserError, match="is no JSON"):
        read_graph(tmp_path / "text.json")


@pytest.mark.parametrize("seed", range(3))
def test_fusion_keeps_all_work_and_makes_no_cycle(seed):
    graph = generate_graph(120, seed)
    small = fuse(graph, 40)
    assert 1 < len(small) < len(graph)
    for key in ("flops", "parameter_bytes"):
        assert small.get_sizes(key).sum() == graph.get_sizes(key).sum()
    # nothing is lost: what is kept for the backward pass, and what others read
    kept = [sum(each.get_sizes(key).sum() for key in ("output_bytes", "saved_bytes")) for each in (graph, small)]
    assert kept[0] == kept[1]


def test_fusion_joins_a_chain_to_its_work():
    nodes = (
        Node("a", "mm", 10**9, 100, 7),
        Node("b", "relu", 10, 100, inputs=("a",)),
        Node("c", "mm", 10**9, 50, inputs=("b",)),
        Node("d", "mm", 10**9, 50, inputs=("b",)),
    )
    fused = fuse(OperatorGraph.from_nodes("chain", nodes))
    assert [(each.id, each.output_bytes, each.saved_bytes, each.inputs) for each in fused.nodes] == [
        ("a", 100, 100, ()),
        ("c", 50, 0, ("a",)),
        ("d", 50, 0, ("a",)),
    ]


def test_architectures_have_the_published_parameters():
    def count(network):
        return network.build("x", "", 1).get_sizes("parameter_bytes").sum() / 4

    assert count(build_inception()) == 23_834_568
    assert round(count(build_amoebanet()) / 1e6) == 82  # GPipe, table 1: AmoebaNet-D (18, 208)
    deep, shallow = (build_wavenet(stacks=stacks) for stacks in (4, 2))
    assert sum(each.op == "gate" for each in deep.nodes) == 36 == 2 * sum(each.op == "gate" for each in shallow.nodes)
    # 5.7 billion multiplications with additions in Inception-v3 (Szegedy et al. 2016)
    assert sum(each.flops for each in build_inception(1).nodes) / 2e9 == pytest.approx(5.7, abs=0.1)


def test_the_graphs_of_the_table_come_with_headwise():
    assert len(list_graphs()) == 14
    for name in list_graphs():
        graph = load_named(name)
        assert graph.name == name and graph.devices in (2, 4, 8) and graph.source
        assert len(graph) <= 512, name
        assert all(graph.get_sizes(key).min() >= 0 for key in SIZES)
    with pytest.raises(UserError, match=r"did you mean .*rnnlm-2"):
        load_named("rnnlm-3")


def test_sizes_and_links():
    assert parse_bytes("512MB", "--memory") == 512e6
    for text in ("16XB", "16", "GB", "-1GB", "0GB", "1e999GB"):
        with pytest.raises(UserError, match="is no size of memory; write it as 16GB"):
            parse_bytes(text, "--memory")
    assert parse_link("2GiB/s,1ms", "--links") == {"bandwidth": 2 * 2**30, "latency": 1e-3}
    for text in ("12GB", "fast", "12GB/s,soon", "0GB/s"):
        with pytest.raises(UserError, match="is no speed of links"):
            parse_link(text, "--links")


def test_stretches_are_balanced():
    weights = np.random.default_rng(0).random(50)
    numbers = cut_stretches(weights, 4)
    assert (np.diff(numbers) >= 0).all() and numbers[-1] <= 3
    assert np.bincount(numbers, weights=weights).max() <= weights.sum() / 4 + weights.max()


def test_a_graph_that_fits_nowhere_is_refused():
    with pytest.raises(UserError, match=r"needs .* more than the 1 MB of a device"):
        GraphsConfig(name="rnnlm-2", cluster={"memory": 1e6}).load()
    with pytest.raises(UserError, match="its parameters need"):
        GraphsConfig(random=1, nodes=500, cluster={"memory": 2e8, "devices": 2}).load()
    with pytest.raises(UserError, match="give graphs in one way"):
        validate(GraphsConfig, {"name": "rnnlm-2", "random": 3}, "data")
