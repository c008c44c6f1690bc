"""`reach`: a disc with momentum is pushed to targets; continuous actions."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from headwise.worlds.base import SIDE, Arrays, World
from headwise.worlds.drawing import Scene, SceneConfig, fill, make_disc, stamp

FRICTION, FORCE = 0.3, 0.02  # share of the velocity that is lost in a step; velocity that a full push adds
TOUCH = 0.08  # distance at which a target is reached; the side of the field is 1
MARGIN = 0.08  # of the field, where no target is
DISC, TARGET = 7, 9  # pixels
PALETTE = np.array([[24, 28, 24], [240, 240, 240], [70, 200, 120]], np.uint8)  # background, disc, target


class ReachConfig(SceneConfig):
    """The settings of `reach`."""

    max_steps: int = Field(100, ge=1)


class Reach(World[ReachConfig]):
    """Rewards: how much nearer the target is, and +1 when it is reached and the next one appears. Actions: the push to
    the right and down, -1 to 1."""

    action_low, action_high = (-1.0, -1.0), (1.0, 1.0)

    @property
    def scene(self) -> Scene:
        return Scene(self.config, PALETTE)

    @property
    def state_size(self) -> int:
        return 6

    def make_arrays(self, count: int) -> Arrays:
        names = ("place", "velocity", "target")
        return {name: np.zeros((count, 2)) for name in names} | self.scene.make_arrays(count)

    def start(self, rows: np.ndarray) -> None:
        self.arrays["velocity"][rows] = 0
        for name in ("place", "target"):
            self.arrays[name][rows] = self.draw_places(rows)
        self.scene.start(self, rows)

    def draw_places(self, rows: np.ndarray) -> np.ndarray:
        return MARGIN + (1 - 2 * MARGIN) * self.draw(rows, 2)

    def advance(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        place, velocity, target = (self.arrays[name] for name in ("place", "velocity", "target"))
        before = np.linalg.norm(target - place, axis=1)
        velocity *= 1 - FRICTION
        velocity += FORCE * np.clip(actions.astype(np.float64), -1, 1)
        place += velocity
        outside = (place < 0) | (place > 1)
        velocity[outside] = 0
        np.clip(place, 0, 1, out=place)
        after = np.linalg.norm(target - place, axis=1)
        reached = after < TOUCH
        rows = np.nonzero(reached)[0]
        if len(rows):
            target[rows] = self.draw_places(rows)
        self.scene.advance(self.arrays)
        return before - after + reached, np.zeros(self.count, bool)

    def render(self) -> np.ndarray:
        palette = self.arrays["palette"]
        frames = fill(palette[:, 0])
        self.scene.render_blobs(self.arrays, frames)
        for name, side, colour in (("target", TARGET, 2), ("place", DISC, 1)):
            column, row = SIDE * self.arrays[name].T - side / 2
            stamp(frames, make_disc(side), row, column, palette[:, colour])
        return frames

    def describe(self) -> np.ndarray:
        parts = (self.arrays["place"], self.arrays["velocity"] / FORCE, self.arrays["target"])
        return np.concatenate(parts, axis=1).astype(np.float32)

    def act_expert(self) -> np.ndarray:
        """Push towards the target, and brake near it (a PD controller)."""
        error = self.arrays["target"] - self.arrays["place"]
        return np.clip(10 * error - 12 * self.arrays["velocity"], -1, 1).astype(np.float32)
