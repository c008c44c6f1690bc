"""`road`: a car on a closed track, seen from above and turned with the car, in the spirit of Gymnasium's CarRacing.

Letters: N copies, T tracks, P points of a track, S side of a map in pixels.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
from pydantic import Field

from headwise.worlds.base import SIDE, Arrays, World
from headwise.worlds.drawing import Scene, SceneConfig, make_box, paint, stamp

FIELD, EDGE = 256, 64  # pixels of the field in which a car may drive, and around it
MAP = FIELD + 2 * EDGE
POINTS, RADIUS, HALF_WIDTH = 128, 84.0, 8.0  # of a track
WAVES = 4  # frequencies of a track's shape
HEADINGS = 256  # for which the view is computed
CAR_ROW, CAR_COLUMN = 48, 32  # where the car stands in a frame
GAS, BRAKE, DRAG, MUD = 0.08, 0.15, 0.03, 0.12  # changes of the speed in a step; drag on the road and on the grass
TURN = 0.09  # radians of a full turn of the wheel in a step
GRASS, TUFT, ASPHALT, LINE, CAR = range(5)
PALETTE = np.array([[90, 170, 80], [80, 155, 72], [105, 105, 110], [225, 225, 225], [200, 40, 40]], np.uint8)
AHEAD = (4, 8, 14, 20, 28)  # points of the road that a state describes


class RoadConfig(SceneConfig):
    """The settings of `road`."""

    max_steps: int = Field(400, ge=1)
    tracks: int = Field(8, ge=1, le=64)  # different ones; an episode has one of them


class Tracks(NamedTuple):
    """T tracks: their points (T, P, 2), x and y, and their maps (T, S, S) of kinds of ground."""

    points: np.ndarray
    maps: np.ndarray


@cache
def make_tracks(count: int) -> Tracks:
    """Closed curves around the middle of the field, r(t) = R (1 + sum_k a_k cos(k t + p_k))."""
    points, maps = np.empty((count, POINTS, 2)), np.empty((count, MAP, MAP), np.uint8)
    angle = 2 * np.pi * np.arange(POINTS) / POINTS
    y, x = np.mgrid[:MAP, :MAP]
    for track in range(count):
        random = np.random.default_rng(track)
        waves, phases = np.arange(2, 2 + WAVES), random.uniform(0, 2 * np.pi, WAVES)
        sizes = random.uniform(0.3, 1, WAVES) * 0.25 / waves
        radius = RADIUS * (1 + (sizes[:, None] * np.cos(waves[:, None] * angle + phases[:, None])).sum(0))
        points[track] = MAP / 2 + radius[:, None] * np.stack((np.cos(angle), np.sin(angle)), axis=1)
        ends = np.roll(points[track], -1, axis=0)
        dense = np.concatenate([points[track] + share * (ends - points[track]) for share in (0, 0.25, 0.5, 0.75)])
        ground = np.where((x // 16 + y // 16) % 2 == 0, GRASS, TUFT).astype(np.uint8)
        near = np.full((MAP, MAP), np.inf)
        for point in dense:  # each fills a box around it, which is much less than the map
            low = np.maximum(point.astype(int) - 12, 0)
            box = (slice(low[1], low[1] + 25), slice(low[0], low[0] + 25))
            near[box] = np.minimum(near[box], np.hypot(x[box] - point[0], y[box] - point[1]))
        ground[near <= HALF_WIDTH + 1], ground[near <= HALF_WIDTH] = LINE, ASPHALT
        maps[track] = ground
    return Tracks(points, maps)


@cache
def make_views() -> np.ndarray:
    """For each heading, where in the flat map the pixels of a frame are, from the car on: (HEADINGS, 64 * 64)."""
    heading = 2 * np.pi * np.arange(HEADINGS)[:, None, None] / HEADINGS
    row, column = np.mgrid[:SIDE, :SIDE]
    forward, right = CAR_ROW - row, column - CAR_COLUMN
    x = np.rint(forward * np.cos(heading) - right * np.sin(heading)).astype(np.int64)
    y = np.rint(forward * np.sin(heading) + right * np.cos(heading)).astype(np.int64)
    return (y * MAP + x).reshape(HEADINGS, -1)


class Road(World[RoadConfig]):
    """Rewards as in CarRacing: 1000 / P for each of the P pieces of road that is visited first, -0.1 for each step.
    The episode ends when 95 % are visited. Actions: steering, -1 (left) to 1; gas and brake, 0 to 1."""

    action_low, action_high = (-1.0, 0.0, 0.0), (1.0, 1.0, 1.0)

    @property
    def scene(self) -> Scene:
        return Scene(self.config, PALETTE)

    @property
    def state_size(self) -> int:
        return 2 + 2 * len(AHEAD)

    def make_arrays(self, count: int) -> Arrays:
        return {
            "track": np.zeros(count, np.int64),
            "place": np.zeros((count, 2)),
            "heading": np.zeros(count),
            "speed": np.zeros(count),
            "distance": np.zeros(count),  # from the middle of the road
            "visited": np.zeros((count, POINTS), bool),
            **self.scene.make_arrays(count),
        }

    def start(self, rows: np.ndarray) -> None:
        numbers, tracks = self.draw(rows, 2), make_tracks(self.config.tracks)
        track, first = (self.config.tracks * numbers[:, 0]).astype(int), (POINTS * numbers[:, 1]).astype(int)
        here, there = tracks.points[track, first], tracks.points[track, (first + 1) % POINTS]
        self.arrays["track"][rows], self.arrays["place"][rows], self.arrays["speed"][rows] = track, here, 0
        self.arrays["heading"][rows] = np.arctan2(there[:, 1] - here[:, 1], there[:, 0] - here[:, 0])
        self.arrays["visited"][rows], self.arrays["distance"][rows] = False, 0
        self.scene.start(self, rows)

    def find_nearest(self) -> tuple[np.ndarray, np.ndarray]:
        """The nearest point of the road and its distance: (N,) each."""
        points = make_tracks(self.config.tracks).points[self.arrays["track"]]  # (N, P, 2)
        squares = ((points - self.arrays["place"][:, None]) ** 2).sum(2)
        nearest = squares.argmin(1)
        return nearest, np.sqrt(squares[np.arange(self.count), nearest])

    def advance(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        arrays = self.arrays
        steer, gas, brake = np.clip(actions.astype(np.float64), self.action_low, self.action_high).T
        drag = np.where(arrays["distance"] > HALF_WIDTH, MUD, DRAG)
        arrays["speed"][:] = np.maximum(arrays["speed"] * (1 - drag) + GAS * gas - BRAKE * brake, 0)
        arrays["heading"] += TURN * steer * np.minimum(arrays["speed"], 1)
        direction = np.stack((np.cos(arrays["heading"]), np.sin(arrays["heading"])), axis=1)
        arrays["place"] += arrays["speed"][:, None] * direction
        np.clip(arrays["place"], EDGE, EDGE + FIELD - 1, out=arrays["place"])
        nearest, arrays["distance"][:] = self.find_nearest()
        every = np.arange(self.count)
        new = (arrays["distance"] <= HALF_WIDTH) & ~arrays["visited"][every, nearest]
        arrays["visited"][every[new], nearest[new]] = True
        self.scene.advance(arrays)
        return 1000 / POINTS * new - 0.1, arrays["visited"].sum(1) >= 0.95 * POINTS

    def render(self) -> np.ndarray:
        column, row = np.rint(self.arrays["place"]).astype(np.int64).T
        heading = np.rint(self.arrays["heading"] * (HEADINGS / (2 * np.pi))).astype(np.int64) % HEADINGS
        maps = make_tracks(self.config.tracks).maps.reshape(-1)
        first = (self.arrays["track"] * MAP + row) * MAP + column
        ground = maps.take(make_views()[heading] + first[:, None], mode="clip")  # (N, 64 * 64)
        palette = self.arrays["palette"]
        frames = paint(ground, palette)
        self.scene.render_blobs(self.arrays, frames)
        top, left = np.full(self.count, CAR_ROW - 3), np.full(self.count, CAR_COLUMN - 2)
        stamp(frames, make_box(7, 4), top, left, palette[:, CAR])
        return frames

    def describe(self) -> np.ndarray:
        """Speed, distance from the middle of the road, and points of the road ahead as the car sees them."""
        points, distance = self.look_ahead(AHEAD) / SIDE, self.arrays["distance"] / HALF_WIDTH
        numbers = np.stack((self.arrays["speed"], distance), axis=1)
        return np.concatenate((numbers, points.reshape(self.count, -1)), axis=1).astype(np.float32)

    def look_ahead(self, steps: tuple[int, ...]) -> np.ndarray:
        """Points of the road so many steps ahead, forward and to the right of the car: (N, steps, 2)."""
        nearest = self.find_nearest()[0][:, None] + np.array(steps)
        points = make_tracks(self.config.tracks).points[self.arrays["track"][:, None], nearest % POINTS]
        x, y = np.moveaxis(points - self.arrays["place"][:, None], -1, 0)
        cos, sin = np.cos(self.arrays["heading"])[:, None], np.sin(self.arrays["heading"])[:, None]
        return np.stack((x * cos + y * sin, y * cos - x * sin), axis=-1)

    def act_expert(self) -> np.ndarray:
        """Steer to a point ahead (pure pursuit), and slow down where the road turns."""
        near, far = np.moveaxis(self.look_ahead((5, 12)), 1, 0)
        steer = np.clip(3 * np.arctan2(near[:, 1], near[:, 0]), -1, 1)
        turn = np.abs(np.arctan2(far[:, 1], far[:, 0]))
        pace = np.clip(2.6 - 2.5 * turn, 1.0, 2.4)
        gas, brake = self.arrays["speed"] < pace, self.arrays["speed"] > pace + 0.3
        return np.stack((steer, gas, 0.5 * brake), axis=1).astype(np.float32)
