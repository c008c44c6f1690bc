"""GO (Zhou et al. 2020, "Transferable graph optimizers for ML compilers"): places all operators of a graph at once.

GraphSAGE with max-pool aggregators gives each operator a vector; a Transformer reads them in topological order, in
segments with the memory of earlier ones (Transformer-XL) and without positions; each operator has one softmax over
devices, which no other choice conditions. Instead, placements are refined: `passes` times the same network reads the
placement that was drawn before. Superposition lets one network serve unlike graphs: the inputs of each layer are
multiplied by a vector c(x0) that depends on the graph alone. Trained by PPO (`tasks/place.py`): on one graph (GO-one),
or on several (batch), and then fine-tuned to another with `init_from`.

DISCREPANCY: the paper gives neither widths nor the features of a node in full; ours are in `placement/features.py`. Its
c is a dense layer of x0, ours of the mean of x0 over nodes, initialised so that it begins near 1. Refinement passes are
those of placements alone; the paper also has passes for schedules and fusion.

Letters: B placements, N nodes, T passes, S nodes of a segment, C width, D devices.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from headwise.blocks.attention.multihead import AttentionConfig
from headwise.blocks.graphsage import GraphSageLayer
from headwise.blocks.positions.absolute import NoPositionsConfig
from headwise.blocks.residual import PreNormConfig
from headwise.blocks.segment_memory import SegmentMemory
from headwise.blocks.stream import Context, Stream
from headwise.blocks.tables import AnyPosition, AnyWiring
from headwise.models.entry import Check, Entry
from headwise.models.init_weights import init_xavier
from headwise.models.layers import OneStackFields, Parts, build_stack
from headwise.models.placement_policy import (
    GraphInput,
    Measured,
    PlacerConfig,
    Policy,
    choose,
    mask_devices,
    measure_choices,
)
from headwise.placement.features import KINDS, NUMBERS


class GoConfig(OneStackFields, PlacerConfig):
    kind: Literal["go"] = "go"
    width: int = Field(128, ge=1)
    heads: int = Field(4, ge=1)
    depth: int = Field(2, ge=1)
    positions: AnyPosition = NoPositionsConfig()
    wiring: AnyWiring = PreNormConfig()
    dropout: float = Field(0.0, ge=0, lt=1)
    graph_layers: int = Field(3, ge=1)  # of GraphSAGE: how many edges away a node sees others
    segment: int = Field(128, ge=1)  # nodes of a segment
    memory_length: int = Field(128, ge=0)  # nodes of earlier segments that each layer attends to
    passes: int = Field(2, ge=1)  # in which a placement is drawn and refined
    superposition: bool = True
    devices: int = Field(8, ge=1)  # at most; on fewer, the others are masked

    def pattern(self, memory: bool = False) -> tuple[Parts, ...]:
        return ((AttentionConfig(memory_length=self.memory_length), self.feedforward),)

    def build(self, vocab: int = 0, outputs: int = 0, task: str = "") -> Any:
        self.resolve_task(task)
        model = GraphOptimizer(self)
        init_xavier(model)
        model.init_weights()
        return model


class Superposition(nn.Module):
    """Superposition: x * c with c = W mean(x0) + b, a vector for the whole graph (feature-wise modulation)."""

    def __init__(self, width: int):
        super().__init__()
        self.condition = nn.Linear(width, width)

    def forward(self, x: Tensor, graph: Tensor) -> Tensor:
        """(B, S, C) from the same and the mean of x0, (C,)."""
        return x * self.condition(graph)


class GraphEmbedding(nn.Module):
    """Operators -> vectors x0 that know their neighbourhood: norm(x + GraphSAGE(x)), which tells neighbours apart."""

    def __init__(self, width: int, layers: int):
        super().__init__()
        self.kinds = nn.Embedding(KINDS, width)
        self.numbers = nn.Linear(NUMBERS, width)
        self.layers = nn.ModuleList(GraphSageLayer(width) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, graph: GraphInput) -> Tensor:
        x = first = self.kinds(graph.kinds) + self.numbers(graph.numbers)  # (N, C)
        for layer in self.layers:
            x = layer(x, graph.edges)
        return self.norm(first + x)


class GraphOptimizer(Policy):
    """Actions are the devices of all passes, (B, T * N); the placement is the last one's.

    >>> model = GraphOptimizer(ENTRY.configure("tiny")).eval()
    >>> model(*model.make_blank_inputs(1, 5, device="cpu")).shape
    torch.Size([5])
    """

    def __init__(self, config: GoConfig):
        super().__init__(config)
        width, self.passes, self.segment = config.width, config.passes, config.segment
        self.memory_length = config.memory_length
        self.embed = GraphEmbedding(width, config.graph_layers)
        self.previous = nn.Embedding(config.devices + 1, width)  # the pass before; 0: none
        self.stack = build_stack(config, config.stack)
        self.gates = (
            nn.ModuleList(Superposition(width) for _ in self.stack.layer_numbers) if config.superposition else None
        )
        self.head = nn.Linear(config.output_width, config.devices)

    def init_weights(self) -> None:
        """Gates begin near 1, and all devices are about equally probable."""
        for gate in self.gates or ():
            assert isinstance(gate, Superposition)
            nn.init.normal_(gate.condition.weight, std=0.02)
            nn.init.ones_(gate.condition.bias)
        nn.init.normal_(self.head.weight, std=0.02)
        nn.init.zeros_(self.head.bias)

    def compute_logits(self, x0: Tensor, previous: Tensor, devices: int) -> Tensor:
        """Logits (B, N, D) of a pass, from vectors (N, C) and the placements of the pass before (B, N); 0: none."""
        x, whole = x0 + self.previous(previous), x0.mean(0)  # (B, N, C), (C,)
        states, outputs = dict[str, Tensor](), []
        for part in x.split(self.segment, dim=1):
            memory = SegmentMemory(self.memory_length, states)
            outputs.append(self.read_segment(part, whole, Context(cache=memory)))
            states = memory.next_states
        return mask_devices(self.head(torch.cat(outputs, 1)), devices)

    def read_segment(self, x: Tensor, whole: Tensor, ctx: Context) -> Tensor:
        stream = Stream(x, torch.arange(x.shape[1], device=x.device))
        for index in range(len(self.stack.layer_numbers)):
            if self.gates is not None:
                stream = stream.with_x(self.gates[index](stream.x, whole))
            stream = self.stack.run_layer(index, stream, self.stack.get_layer_context(ctx, index))
        outputs: Tensor = self.stack.final(stream.x)
        return outputs

    def draw(self, graph: GraphInput, count: int, greedy: bool = False) -> Tensor:
        x0, actions = self.embed(graph), list[Tensor]()
        previous = torch.zeros(1, len(x0), dtype=torch.long, device=x0.device)
        for _ in range(self.passes):
            logits = self.compute_logits(x0, previous, graph.devices)  # of the first pass, the same for all
            actions.append(choose(logits.expand(count, -1, -1), greedy))
            previous = actions[-1] + 1
        return torch.cat(actions, 1)  # T x (B, N) -> (B, T * N)

    def measure(self, graph: GraphInput, actions: Tensor) -> Measured:
        x0, parts = self.embed(graph), actions.view(len(actions), self.passes, -1).unbind(1)  # T x (B, N)
        none = torch.zeros_like(parts[0][:1])
        logits = [
            self.compute_logits(x0, before, graph.devices).expand(len(actions), -1, -1)
            for before in (none, *(part + 1 for part in parts[:-1]))
        ]
        return measure_choices(torch.cat(logits, 1), actions)

    def place(self, graph: GraphInput, actions: Tensor) -> Tensor:
        return actions[:, -len(graph.kinds) :]


SIZES: dict[str, dict[str, Any]] = {
    "base": {},
    "small": {"width": 64},
    "tiny": {"width": 16, "heads": 2, "graph_layers": 1, "segment": 4, "memory_length": 4},
}

ENTRY = Entry(
    name="go",
    paper="Zhou et al., Transferable Graph Optimizers for ML Compilers",
    year=2020,
    family="agents",
    config=GoConfig,
    sizes=SIZES,
    vocab=0,
    checks=(
        Check(
            "GraphSAGE, superposition, segments with memory and the probabilities of a placement, written out",
            "tests/models/test_go.py::test_the_network_is_its_equations",
        ),
    ),
)
