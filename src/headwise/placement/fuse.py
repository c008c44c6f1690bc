"""Fusion of an operator graph: small operators join their neighbours, as compilers fuse kernels, so that a graph has no
more nodes than a placement needs.

Two joins cannot make a cycle: of a node with its only reader (every path from it goes there), and of a node with the
only node that it reads. First, nodes with hardly any work join a neighbour; then, if the graph has to become smaller
still, the pairs that have the least work together, so that no node grows beyond the others.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

from headwise.placement.cluster import Cluster
from headwise.placement.graph import Node, OperatorGraph

LARGE = 4.0  # times the mean work of a node of the fused graph, which two that join must not exceed together
Cost = Callable[[float, float], float]  # of joining two nodes with so much work

SMALL = 0.02  # share of the mean work of a node up to which it joins a neighbour


def fuse(graph: OperatorGraph, most: int = 128, least: float = SMALL) -> OperatorGraph:
    """A graph with about `most` nodes, as far as joins without a cycle and without a giant allow it. FLOPs and
    parameters are those of all its operators; its name and operator are those of the one with the most FLOPs; its
    output is what others read, and what only its own operators read is saved for the backward pass."""
    fusion = Fusion(graph)
    mean = sum(fusion.work.values()) / max(len(graph), 1)
    fusion.join_while(min, lambda cost, _: cost <= least * mean)
    largest = LARGE * mean * len(graph) / most
    fusion.join_while(lambda one, two: one + two, lambda cost, nodes: nodes > most and cost <= largest)
    return fusion.build()


class Fusion:
    """Groups of nodes, with what they read and who reads them."""

    def __init__(self, graph: OperatorGraph):
        self.graph, cluster = graph, Cluster()
        flops, sizes = graph.get_sizes("flops"), graph.get_sizes("output_bytes")
        seconds = cluster.time_operators(flops, sizes + graph.get_sizes("parameter_bytes"))
        self.work = dict(enumerate((seconds - cluster.overhead).tolist()))
        self.members = {number: [number] for number in self.work}
        self.inputs: dict[int, set[int]] = {number: set() for number in self.work}
        self.readers: dict[int, set[int]] = {number: set() for number in self.work}
        for source, reader in graph.edges.tolist():
            self.inputs[reader].add(source)
            self.readers[source].add(reader)

    def list_joins(self, group: int, cost: Cost) -> list[tuple[float, int, int]]:
        """Joins that a group could take part in: cost, producer, reader."""
        pairs = {(group, reader) for reader in self.readers[group]} | {(source, group) for source in self.inputs[group]}
        return [
            (cost(self.work[one], self.work[two]), one, two)
            for one, two in sorted(pairs)
            if len(self.readers[one]) == 1 or len(self.inputs[two]) == 1
        ]

    def join_while(self, cost: Cost, wanted: Callable[[float, int], bool]) -> None:
        """Join pairs, the cheapest first, as long as their cost and the number of groups say so."""
        queue = [join for group in self.members for join in self.list_joins(group, cost)]
        heapq.heapify(queue)
        while queue:
            price, one, two = heapq.heappop(queue)
            if not wanted(price, len(self.members)):
                return
            # the groups may have joined others since
            if one in self.members and two in self.members and (price, one, two) in self.list_joins(one, cost):
                self.join(one, two)
                for join in self.list_joins(two, cost):
                    heapq.heappush(queue, join)

    def join(self, one: int, two: int) -> None:
        """A producer becomes part of its reader's group."""
        self.members[two] = self.members.pop(one) + self.members[two]
        self.work[two] += self.work.pop(one)
        inputs, readers = self.inputs.pop(one), self.readers.pop(one) - {two}
        self.inputs[two] = (self.inputs[two] - {one}) | inputs
        self.readers[two] |= readers
        for source in inputs:
            self.readers[source] = (self.readers[source] - {one}) | {two}
        for reader in readers:
            self.inputs[reader] = (self.inputs[reader] - {one}) | {two}

    def build(self) -> OperatorGraph:
        nodes, group_of = self.graph.nodes, {each: group for group, all_of in self.members.items() for each in all_of}
        read = {(source, group_of[reader]) for source, reader in self.graph.edges.tolist()}
        outputs = {source for source, group in read if group_of[source] != group}
        name = {
            group: nodes[max(all_of, key=lambda each: (nodes[each].flops, nodes[each].output_bytes))]
            for group, all_of in self.members.items()
        }
        built = []
        for group, all_of in self.members.items():
            given = [each for each in all_of if each in outputs] or all_of[-1:]  # nobody reads the last ones
            inner = sum(nodes[each].output_bytes for each in all_of if each not in given)
            built.append(
                Node(
                    name[group].id,
                    name[group].op,
                    sum(nodes[each].flops for each in all_of),
                    sum(nodes[each].output_bytes for each in given),
                    sum(nodes[each].parameter_bytes for each in all_of),
                    sum(nodes[each].saved_bytes for each in all_of) + inner,
                    tuple(name[source].id for source in sorted(self.inputs[group])),
                )
            )
        return OperatorGraph.from_nodes(self.graph.name, built, self.graph.source, self.graph.devices)
