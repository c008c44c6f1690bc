"""Placement files: JSON with the device of each operator of a graph, and what the simulator says of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from headwise.placement.simulator import Simulator
from headwise.utils.files import write

FORMAT, VERSION = "headwise-placement", 1


def describe_placement(simulator: Simulator, placement: np.ndarray, method: str) -> dict[str, Any]:
    """A placement with its simulated step."""
    schedule, graph = simulator.simulate(placement[None]), simulator.graph
    memory = schedule.measure_memory()[0]
    return {
        "format": FORMAT,
        "version": VERSION,
        "graph": graph.name,
        "source": graph.source,
        "digest": graph.digest,
        "method": method,
        "cluster": simulator.cluster.model_dump(mode="json"),
        "fits": bool((memory <= simulator.cluster.memory).all()),
        "seconds": float(schedule.runtime[0]),
        "seconds_on_one_device": simulator.serial,
        "memory_bytes": [int(value) for value in memory],
        "transfers": len(schedule.list_transfers()),
        "placement": {node.id: int(device) for node, device in zip(graph.nodes, placement, strict=True)},
    }


def write_placement(path: Path, described: dict[str, Any]) -> Path:
    return write(path, json.dumps(described, indent=1) + "\n")
