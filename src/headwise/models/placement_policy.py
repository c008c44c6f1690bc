"""What all models that place operators have in common: the placements that they found, and policies that draw them.

Letters: B placements, N nodes, F numbers, E edges, K actions of a placement, D devices.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from headwise.models.config import ModelConfig
from headwise.placement.features import NUMBERS, Features
from headwise.utils.notebook import HtmlTree

NONE_FITS = -1.0  # seconds of the best placement if none fits


class GraphInput(NamedTuple):
    """A graph on a cluster as tensors, see `headwise.placement.features`."""

    kinds: Tensor  # (N,)
    numbers: Tensor  # (N, F)
    edges: Tensor  # (2, E)
    devices: int

    @classmethod
    def from_features(cls, features: Features, device: torch.device | str = "cpu") -> GraphInput:
        arrays = (features.kinds, features.numbers, features.edges)
        kinds, numbers, edges = (torch.from_numpy(each).to(device) for each in arrays)
        return cls(kinds, numbers, edges, features.devices)


class Measured(NamedTuple):
    """Log probabilities and entropies of actions, (B, K)."""

    log_probs: Tensor
    entropy: Tensor


class PlacerConfig(ModelConfig):
    """`graphs` and `devices` are those of the data; the task sets them."""

    tasks = ("place",)
    graphs: tuple[tuple[str, int], ...] = ()  # key and number of nodes of each graph of the run


class FoundPlacements(nn.Module):
    """The best placement of each graph of a run, how long its step takes, and after how many calls of the simulator."""

    def __init__(self, graphs: Sequence[tuple[str, int]]):
        super().__init__()
        for key, nodes in graphs:
            self.register_buffer(f"placement_{key}", torch.zeros(nodes, dtype=torch.long))
            self.register_buffer(f"runtime_{key}", torch.tensor(NONE_FITS, dtype=torch.float64))
            self.register_buffer(f"calls_{key}", torch.tensor(0))

    def has(self, key: str) -> bool:
        """Whether the graph was searched."""
        return hasattr(self, f"calls_{key}") and int(self.get("calls", key)) > 0

    def get(self, what: str, key: str) -> Tensor:
        """`placement`, `runtime` or `calls` of a graph."""
        value: Tensor = getattr(self, f"{what}_{key}")
        return value

    def update(self, key: str, placements: np.ndarray, runtimes: np.ndarray, calls: int) -> None:
        """Count so many calls, and keep the best placement; the first one as long as none fits."""
        best, known = int(runtimes.argmin()), float(self.get("runtime", key))
        first = not self.has(key)
        self.get("calls", key).add_(calls)
        if np.isfinite(runtimes[best]) and (known == NONE_FITS or runtimes[best] < known):
            self.get("runtime", key).fill_(float(runtimes[best]))
        elif not first:
            return
        self.get("placement", key).copy_(torch.from_numpy(np.asarray(placements[best], np.int64)))


class PlacementModel(HtmlTree, nn.Module):
    """A model of device placement: it gives each operator of a graph a device."""

    def __init__(self, config: PlacerConfig):
        super().__init__()
        self.config = config
        self.found = FoundPlacements(config.graphs)


class Policy(PlacementModel, ABC):
    """Draws placements of a graph. Actions are what is drawn, from which the placement follows."""

    @abstractmethod
    def draw(self, graph: GraphInput, count: int, greedy: bool = False) -> Tensor:
        """Actions of `count` placements (B, K), or the most probable ones."""

    @abstractmethod
    def measure(self, graph: GraphInput, actions: Tensor) -> Measured:
        """How probable actions are."""

    @abstractmethod
    def place(self, graph: GraphInput, actions: Tensor) -> Tensor:
        """The placements (B, N) of actions."""

    def forward(self, graph: GraphInput) -> Tensor:
        """The most probable placement, (N,)."""
        return self.place(graph, self.draw(graph, 1, greedy=True))[0]

    def make_blank_inputs(self, rows: int, length: int, device: str = "meta") -> tuple[GraphInput]:
        """A chain of `length` operators on two devices, to count costs."""
        chain = torch.arange(length, device=device)
        kinds = torch.zeros(length, dtype=torch.long, device=device)
        return (GraphInput(kinds, torch.zeros(length, NUMBERS, device=device), torch.stack([chain, chain]), 2),)


def mask_devices(logits: Tensor, devices: int) -> Tensor:
    """Logits (..., D) of which only those of the first devices are possible."""
    absent = torch.arange(logits.shape[-1], device=logits.device) >= devices
    return logits.masked_fill(absent, torch.finfo(logits.dtype).min)


def choose(logits: Tensor, greedy: bool) -> Tensor:
    """Draw from logits (..., D), or take the largest."""
    if greedy:
        return logits.argmax(-1)
    return torch.multinomial(logits.flatten(0, -2).softmax(-1), 1).view(logits.shape[:-1])


def measure_choices(logits: Tensor, actions: Tensor) -> Measured:
    """Log probabilities of actions (...) under logits (..., D), and the entropy of each choice."""
    log_probs = logits.log_softmax(-1)
    entropy = -(log_probs.exp() * log_probs.masked_fill(log_probs < -1e30, 0.0)).sum(-1)
    return Measured(log_probs.gather(-1, actions.unsqueeze(-1)).squeeze(-1), entropy)
