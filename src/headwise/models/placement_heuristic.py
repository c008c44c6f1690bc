"""Placement without learning, as a model without parameters: heuristics and searches of
`headwise.placement.heuristics`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field, field_validator

from headwise.config.base import Problems
from headwise.errors import nearest
from headwise.models.entry import Check, Entry
from headwise.models.placement_policy import PlacementModel, PlacerConfig
from headwise.placement.heuristics import METHODS, Budget
from headwise.placement.simulator import Simulator


class PlacementHeuristicConfig(PlacerConfig):
    kind: Literal["placement-heuristic"] = "placement-heuristic"
    method: str = "heft"  # one of `headwise.placement.heuristics.METHODS`
    calls: int = Field(2000, ge=1)  # of the simulator, by searches

    @field_validator("method")
    @classmethod
    def _check_method(cls, method: str) -> str:
        if method not in METHODS:
            raise Problems([((), f"there is no method '{method}'; {nearest(method, METHODS)}")])
        return method

    def build(self, vocab: int = 0, outputs: int = 0, task: str = "") -> Any:
        self.resolve_task(task)
        return PlacementHeuristic(self)


class PlacementHeuristic(PlacementModel):
    """Keeps the placement that its method gives for each graph."""

    config: PlacementHeuristicConfig

    def fit(self, simulator: Simulator) -> None:
        """Place a graph, with the seed of torch's generator."""
        before, budget = simulator.calls, Budget(self.config.calls, torch.initial_seed() % 2**31)
        placement = METHODS[self.config.method](simulator, budget)[None]
        calls = max(simulator.calls - before, 1)
        self.found.update(simulator.key, placement, simulator.measure(np.asarray(placement)), calls)


SIZES: Mapping[str, Mapping[str, Any]] = {name: {"method": name} for name in METHODS} | {"tiny": {}}

ENTRY = Entry(
    name="placement-heuristic",
    paper="Topcuoglu et al., Performance-Effective and Low-Complexity Task Scheduling; Karypis and Kumar 1998 (METIS)",
    year=2002,
    family="agents",
    config=PlacementHeuristicConfig,
    sizes=SIZES,
    vocab=0,
    checks=(
        Check("the published example of HEFT", "tests/placement/test_heft.py::test_the_published_example"),
        Check(
            "graphs whose minimum cut is known, and networkx's minimum cut",
            "tests/placement/test_metis.py::test_the_cut_is_the_minimum",
            "networkx",
        ),
    ),
)
