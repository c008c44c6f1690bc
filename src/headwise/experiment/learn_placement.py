"""Placements of one graph by a policy: one that is trained for it, or that of a run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from headwise.errors import UserError
from headwise.experiment.config import Experiment
from headwise.experiment.load import load
from headwise.experiment.run import train_experiment
from headwise.placement.simulator import Simulator

POLICIES = ("go", "hdp")
ROLLOUTS, UPDATES = 32, 16


def learn_placement(
    simulator: Simulator, policy: str, calls: int, seed: int, announce: Callable[[str], None]
) -> np.ndarray:
    """Train a policy on one graph (GO-one) for so many calls of the simulator; the best placement that it found."""
    steps = UPDATES * max(calls // ROLLOUTS, 1)
    with TemporaryDirectory() as folder:
        file = simulator.graph.save(Path(folder) / "graph.json")
        experiment = Experiment.model_validate(
            {
                "name": policy,
                "seed": seed,
                "task": {"kind": "place", "rollouts": ROLLOUTS, "updates": UPDATES},
                "data": {"train": str(file), "cluster": simulator.cluster},
                "model": {"kind": policy, "width": 64} | ({"passes": 1} if policy == "go" else {}),
                "train": {
                    "steps": steps,
                    "validate_every": steps,
                    "samples": 0,
                    "schedule": {"kind": "cosine", "lr": 0.002, "warmup": 8},
                    "optimizer": {"kind": "adamw", "weight_decay": 0.0},
                },
            }
        )
        run, _ = train_experiment(experiment, folder, announce)
        return place_by_run(simulator, run.path, "last")


def place_by_run(simulator: Simulator, path: Path, checkpoint: str = "best") -> np.ndarray:
    """The placement of a run: the best that it found of this graph on this cluster, or its policy's most probable
    one."""
    loaded = load(path, which=checkpoint)
    task = loaded.check_command("place")
    known = getattr(loaded.model.config, "devices", simulator.devices)
    if simulator.devices > known:
        raise UserError(f"{path}: its policy knows {known} devices, not {simulator.devices}; use fewer, or another run")
    placement: np.ndarray = task.choose_placement(loaded.model, simulator)
    return placement
