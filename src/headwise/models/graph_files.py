"""The operator graphs of Zhou et al. 2020, table 1, as files: `python -m headwise.models.graph_files [NAMES...]` writes
them to `headwise/placement/graphs`. Language models and GNMT are traced from the models of our catalogue at published
widths, for few steps of time, which keeps the graphs small; convolutional networks are derived from their block
structure.

DISCREPANCY: the paper gives neither batch sizes, except for Inception, nor lengths, and its graphs have up to 80,000
nodes; these have about 128 after fusion, some more. Of Transformer-XL, a step reads four segments, each with the memory
of the one before, along which the simulated backward pass goes, too.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from headwise.blocks.segment_memory import SegmentMemory
from headwise.models.build import build
from headwise.models.operator_graph import trace
from headwise.placement.architectures import Network, build_amoebanet, build_inception, build_wavenet
from headwise.placement.fuse import fuse
from headwise.placement.graph import OperatorGraph
from headwise.placement.named import FOLDER

ROWS = 128  # of a batch of texts
SEGMENTS, SEGMENT = 4, 64  # of a row of Transformer-XL, tokens of each


class Segments(nn.Module):
    """A language model that reads texts in segments, each with the memory of those before."""

    def __init__(self, model: nn.Module, memory_length: int):
        super().__init__()
        self.model, self.memory_length = model, memory_length

    def forward(self, ids: Tensor) -> list[Tensor]:
        logits, states = list[Tensor](), dict[str, Tensor]()
        for part in ids.split(SEGMENT, dim=1):
            carried = SegmentMemory(self.memory_length, states)
            logits.append(self.model(part, carried=carried))
            states = carried.next_states
        return logits


def make_ids(rows: int, length: int) -> Tensor:
    return torch.zeros(rows, length, dtype=torch.long, device="meta")


def trace_lstm(depth: int, name: str) -> OperatorGraph:
    length = 12
    model = build("lstm-base", width=2048, depth=depth, vocab=10_000, device="meta", task="language-model")
    source = f"torch.export of lstm: width 2,048, vocabulary 10,000, {ROWS} rows of {length} tokens"
    return trace(model, [make_ids(ROWS, length)], name, source)


def trace_gnmt(depth: int, name: str) -> OperatorGraph:
    length = 8
    model = build("gnmt-base", depth=depth, device="meta")
    source = f"torch.export of gnmt: width 1,024, vocabulary 32,000, {ROWS} rows of {length} and {length} tokens"
    return trace(model, [make_ids(ROWS, length), make_ids(ROWS, length)], name, source)


def trace_transformer_xl(depth: int, name: str) -> OperatorGraph:
    rows = ROWS // 4
    model = build("transformer-xl-enwik8-large", depth=depth, memory_length=SEGMENT, device="meta")
    what = f"{rows} rows of {SEGMENTS} segments of {SEGMENT} tokens"
    source = f"torch.export of transformer-xl: width 1,024, vocabulary 204, {what}"
    return trace(Segments(model, SEGMENT), [make_ids(rows, SEGMENTS * SEGMENT)], name, source)


def derive(network: Network, what: str, name: str) -> OperatorGraph:
    return network.build(name, f"block structure of {what}, batch of {network.batch}", 0)


GRAPHS: Mapping[str, tuple[int, Callable[[str], OperatorGraph]]] = {  # devices of the paper, and how it is made
    **{f"rnnlm-{depth}": (depth, partial(trace_lstm, depth)) for depth in (2, 4, 8)},
    **{f"gnmt-{depth}": (depth, partial(trace_gnmt, depth)) for depth in (2, 4, 8)},
    **{f"transformer-xl-{depth}": (depth, partial(trace_transformer_xl, depth)) for depth in (2, 4, 8)},
    "inception-b32": (2, lambda name: derive(build_inception(32), "Inception-v3", name)),
    "inception-b64": (2, lambda name: derive(build_inception(64), "Inception-v3", name)),
    "amoebanet": (4, lambda name: derive(build_amoebanet(32), "AmoebaNet-D (18, 208)", name)),
    "wavenet-2x9": (2, lambda name: derive(build_wavenet(8, 2), "WaveNet, 2 stacks of 9 layers", name)),
    "wavenet-4x9": (4, lambda name: derive(build_wavenet(8, 4), "WaveNet, 4 stacks of 9 layers", name)),
}


def make_graph(name: str) -> OperatorGraph:
    """One of `GRAPHS`, fused."""
    devices, make = GRAPHS[name]
    graph = fuse(make(name))
    return OperatorGraph(name, graph.nodes, graph.source, devices)


def main() -> None:
    for name in sys.argv[1:] or GRAPHS:
        print(make_graph(name).save(Path(FOLDER) / f"{name}.json"))


if __name__ == "__main__":
    main()
