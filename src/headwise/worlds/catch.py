"""`catch`: things fall, a paddle at the lower edge catches them."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from headwise.worlds.base import SIDE, Arrays, World
from headwise.worlds.drawing import Scene, SceneConfig, fill, make_box, make_disc, stamp

PADDLE, REACH = 13, 8  # pixels: its width, and how far from its centre a thing is caught
THING = 6  # pixels
PACE = 3  # pixels that the paddle moves in a step
SLOW, FAST = 1.5, 2.5  # pixels that a thing falls in a step
GROUND = SIDE - 8.0  # the row at which a thing is caught or lost
PALETTE = np.array([[16, 18, 34], [240, 240, 240], [235, 90, 60]], np.uint8)  # background, paddle, things


class CatchConfig(SceneConfig):
    """The settings of `catch`."""

    max_steps: int = Field(400, ge=1)
    things: int = Field(2, ge=1, le=8)  # that fall at the same time
    falls: int = Field(20, ge=1)  # things of an episode


class Catch(World[CatchConfig]):
    """Catch falling things: +1 for each that is caught, -1 for each that is lost. Actions: left, stay, right."""

    actions = 3

    @property
    def scene(self) -> Scene:
        return Scene(self.config, PALETTE)

    @property
    def state_size(self) -> int:
        return 1 + 3 * self.config.things

    def make_arrays(self, count: int) -> Arrays:
        return {
            "paddle": np.zeros(count),
            "things": np.zeros((count, self.config.things, 3)),  # row, column, pace
            "fallen": np.zeros(count, np.int64),
            **self.scene.make_arrays(count),
        }

    def start(self, rows: np.ndarray) -> None:
        count = self.config.things
        self.arrays["paddle"][rows], self.arrays["fallen"][rows] = SIDE / 2, 0
        self.arrays["things"][rows] = self.drop(rows, count)
        # Later things start higher, above the frame, so that they do not land at once.
        self.arrays["things"][rows, :, 0] = -np.arange(count) * GROUND / count
        self.scene.start(self, rows)

    def drop(self, rows: np.ndarray, count: int) -> np.ndarray:
        """New things at the upper edge: (rows, count, 3)."""
        numbers = self.draw(rows, 2 * count).reshape(-1, count, 2)
        columns, paces = THING + numbers[:, :, 0] * (SIDE - 2 * THING), SLOW + numbers[:, :, 1] * (FAST - SLOW)
        return np.stack((np.zeros_like(columns), columns, paces), axis=-1)

    def advance(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        arrays, things = self.arrays, self.arrays["things"]
        paddle = arrays["paddle"] + PACE * (actions.astype(np.int64) - 1)
        arrays["paddle"][:] = np.clip(paddle, PADDLE / 2, SIDE - PADDLE / 2)
        things[:, :, 0] += things[:, :, 2]
        landed = things[:, :, 0] >= GROUND
        caught = landed & (np.abs(things[:, :, 1] - arrays["paddle"][:, None]) <= REACH)
        rewards = 2.0 * caught.sum(1) - landed.sum(1)
        arrays["fallen"] += landed.sum(1)
        rows = np.nonzero(landed.any(1))[0]
        if len(rows):
            things[rows] = np.where(landed[rows][:, :, None], self.drop(rows, self.config.things), things[rows])
        self.scene.advance(arrays)
        return rewards, arrays["fallen"] >= self.config.falls

    def render(self) -> np.ndarray:
        palette = self.arrays["palette"]
        frames = fill(palette[:, 0])
        self.scene.render_blobs(self.arrays, frames)
        for number in range(self.config.things):
            row, column, _ = self.arrays["things"][:, number].T
            stamp(frames, make_disc(THING), row, column - THING / 2, palette[:, 2])
        stamp(
            frames,
            make_box(3, PADDLE),
            np.full(self.count, SIDE - 4),
            self.arrays["paddle"] - PADDLE / 2,
            palette[:, 1],
        )
        return frames

    def describe(self) -> np.ndarray:
        paddle, things = self.arrays["paddle"] / SIDE, self.arrays["things"] / (SIDE, SIDE, FAST)
        return np.concatenate((paddle[:, None], things.reshape(self.count, -1)), axis=1).astype(np.float32)

    def act_expert(self) -> np.ndarray:
        """Go to the thing that lands first."""
        things = self.arrays["things"]
        first = ((GROUND - things[:, :, 0]) / things[:, :, 2]).argmin(1)
        distance = things[np.arange(self.count), first, 1] - self.arrays["paddle"]
        return np.where(np.abs(distance) < PACE, 1, np.where(distance > 0, 2, 0))
