"""What an agent made of an observation: for pictures of episodes."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

NOTHING = np.zeros(0, np.float32)


@dataclass(frozen=True, eq=False)
class StepView:
    """One step of an episode as the agent saw it; empty arrays for what an agent does not have."""

    values: np.ndarray  # (A,): probabilities of discrete actions, or a continuous action
    patches: np.ndarray = field(default_factory=lambda: NOTHING.reshape(0, 4))  # (K, 4), the most important first: row,
    # column, height and width as shares of the frame
    importance: np.ndarray = field(default_factory=lambda: NOTHING.reshape(0, 0))  # (rows, columns) of all patches
    past: np.ndarray = field(default_factory=lambda: NOTHING.reshape(0, 0))  # (layers, steps): attention to past steps,
    # the last of which is this one
    to_go: float | None = None  # the return that is still asked for
