"""Random operator graphs: layers of operators with random costs, to compare methods on many graphs at once."""

from __future__ import annotations

import numpy as np

from headwise.placement.graph import Node, OperatorGraph

SOURCE = "generated: random layers"


def generate_graph(nodes: int, seed: int, width: int = 4) -> OperatorGraph:
    """A directed acyclic graph of `nodes` operators in layers of 1 to `width`. Each reads one to three of the two
    layers before. Costs are log-uniform: 0.2 to 20 ms of a P100, outputs of 1 to 100 MB."""
    random = np.random.default_rng([seed, nodes, width])
    layers: list[list[str]] = []
    made = list[Node]()
    while len(made) < nodes:
        before = [name for layer in layers[-2:] for name in layer]
        layer = []
        for _ in range(min(int(random.integers(1, width + 1)), nodes - len(made))):
            count = min(int(random.integers(1, 4)), len(before))
            inputs = sorted(random.choice(before, count, replace=False).tolist(), key=lambda name: int(name[1:]))
            flops, size = 10 ** random.uniform(9, 11), 10 ** random.uniform(6, 8)
            name = f"n{len(made)}"
            made.append(Node(name, "random", int(flops), int(size), int(size / 4), inputs=tuple(inputs)))
            layer.append(name)
        layers.append(layer)
    return OperatorGraph.from_nodes(f"random-{nodes}-{seed}", made, SOURCE)
