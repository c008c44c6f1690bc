"""A policy in the spirit of HDP (Mirhoseini et al. 2018, "A hierarchical model for device placement"): operators are
grouped, and a recurrent network places the groups one after the other.

A feed-forward grouper gives each operator a group; a bidirectional LSTM reads the groups, an LSTM with attention writes
their devices, each knowing the ones before.

DISCREPANCY: the paper trains it by REINFORCE; here the task decides, PPO as for GO, so that only the policies differ.
The vector of a group is the mean of its operators' vectors with their share of all operators, instead of lists of
counts.

Letters: B placements, N nodes, G groups, C width, D devices.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from headwise.models.entry import Check, Entry
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


class HdpConfig(PlacerConfig):
    kind: Literal["hdp"] = "hdp"
    width: int = Field(128, ge=2)
    groups: int = Field(32, ge=1)
    devices: int = Field(8, ge=1)  # at most; on fewer, the others are masked

    def build(self, vocab: int = 0, outputs: int = 0, task: str = "") -> Any:
        self.resolve_task(task)
        return GroupPlacer(self)


class GroupPlacer(Policy):
    """Actions are the groups of the operators, then the devices of the groups, (B, N + G)."""

    def __init__(self, config: HdpConfig):
        super().__init__(config)
        width, self.groups = config.width, config.groups
        self.kinds = nn.Embedding(KINDS, width)
        self.numbers = nn.Linear(NUMBERS, width)
        self.grouper = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, config.groups))
        self.encoder = nn.LSTM(width + 1, width // 2, batch_first=True, bidirectional=True)
        self.device = nn.Embedding(config.devices + 1, width)  # of the group before; 0: none
        self.decoder = nn.LSTMCell(width + 2 * (width // 2), width)
        self.query = nn.Linear(width, 2 * (width // 2))
        self.head = nn.Linear(width + 2 * (width // 2), config.devices)
        for linear in (self.grouper[2], self.head):  # all choices are about equally probable
            assert isinstance(linear, nn.Linear)
            nn.init.normal_(linear.weight, std=0.02)
            nn.init.zeros_(linear.bias)

    def embed(self, graph: GraphInput) -> Tensor:
        return F.relu(self.kinds(graph.kinds) + self.numbers(graph.numbers))  # (N, C)

    def encode_groups(self, x: Tensor, groups: Tensor) -> Tensor:
        """Vectors of groups (B, G, C) from operators (N, C) and their groups (B, N)."""
        members = F.one_hot(groups, self.groups).to(x.dtype)  # (B, N, G)
        counts = members.sum(1).unsqueeze(-1)  # (B, G, 1)
        means = members.transpose(1, 2) @ x / counts.clamp(min=1)
        encoded, _ = self.encoder(torch.cat([means, counts / len(x)], -1))
        return torch.as_tensor(encoded)

    def decode(self, encoded: Tensor, devices: int, given: Tensor | None, greedy: bool) -> tuple[Tensor, Tensor]:
        """Devices of the groups (B, G), drawn or as they are given, and their logits (B, G, D)."""
        rows = len(encoded)
        h = c = encoded.new_zeros(rows, self.decoder.hidden_size)
        before = torch.zeros(rows, dtype=torch.long, device=encoded.device)
        chosen, logits = [], []
        for group in range(self.groups):
            h, c = self.decoder(torch.cat([self.device(before), encoded[:, group]], -1), (h, c))
            weights = (encoded @ self.query(h).unsqueeze(-1)).softmax(1)  # (B, G, 1)
            logits.append(mask_devices(self.head(torch.cat([h, (weights * encoded).sum(1)], -1)), devices))
            chosen.append(choose(logits[-1], greedy) if given is None else given[:, group])
            before = chosen[-1] + 1
        return torch.stack(chosen, 1), torch.stack(logits, 1)

    def draw(self, graph: GraphInput, count: int, greedy: bool = False) -> Tensor:
        x = self.embed(graph)
        groups = choose(self.grouper(x).expand(count, -1, -1), greedy)
        devices, _ = self.decode(self.encode_groups(x, groups), graph.devices, None, greedy)
        return torch.cat([groups, devices], 1)

    def measure(self, graph: GraphInput, actions: Tensor) -> Measured:
        x = self.embed(graph)
        groups, devices = actions.split([len(x), self.groups], dim=1)
        _, logits = self.decode(self.encode_groups(x, groups), graph.devices, devices, False)
        parts = (
            measure_choices(self.grouper(x).expand(len(actions), -1, -1), groups),
            measure_choices(logits, devices),
        )
        return Measured(*(torch.cat(pair, 1) for pair in zip(*parts, strict=True)))

    def place(self, graph: GraphInput, actions: Tensor) -> Tensor:
        groups, devices = actions.split([len(graph.kinds), self.groups], dim=1)
        return devices.gather(1, groups)


SIZES: dict[str, dict[str, Any]] = {"base": {}, "small": {"width": 64}, "tiny": {"width": 16, "groups": 4}}

ENTRY = Entry(
    name="hdp",
    paper="Mirhoseini et al., A Hierarchical Model for Device Placement",
    year=2018,
    family="agents",
    config=HdpConfig,
    sizes=SIZES,
    vocab=0,
    checks=(
        Check(
            "the probabilities of all placements of three operators, which sum to 1",
            "tests/models/test_hdp.py::test_probabilities_of_all_actions_sum_to_one",
        ),
    ),
)
