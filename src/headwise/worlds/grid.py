"""`grid`: two rooms, a locked door between them, its key, coins and an exit.

Letters: N copies; a world is 8 x 8 tiles of 8 x 8 pixels.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from pydantic import Field

from headwise.worlds.base import SIDE, Arrays, World, WorldConfig

TILES = 8  # in a row and in a column, walls at the edges included
FLOOR, WALL, DOOR, KEY, COIN, EXIT, AGENT, BEARER = range(8)  # what a tile shows; a bearer is an agent with the key
REWARDS = np.array([0.0, 0.0, 1.0, 1.0, 1.0, 3.0])  # of entering a tile
STEP_COST = 0.02
MOVES = np.array([[-1, 0], [0, 1], [1, 0], [0, -1]])  # up, right, down, left
COLOURS = np.array(
    [
        [30, 32, 44], [110, 112, 124], [150, 90, 40], [240, 210, 60], [250, 170, 30], [60, 190, 90], [80, 140, 250],
        [240, 210, 60],
    ],
    np.uint8,
)  # fmt: skip
FAR = 99  # beyond every distance


class GridConfig(WorldConfig):
    """The settings of `grid`."""

    max_steps: int = Field(60, ge=1)
    coins: int = Field(3, ge=0, le=6)


@cache
def make_tiles() -> np.ndarray:
    """The picture of each kind of tile: (8, 8, 24) bytes, kind, row, and the colours of a row."""
    tiles = np.empty((len(COLOURS), TILES, TILES, 3), np.uint8)
    tiles[:] = COLOURS[FLOOR]
    row, column = np.mgrid[:TILES, :TILES] - 3.5
    disc, small = row**2 + column**2 <= 12, row**2 + column**2 <= 5
    tiles[WALL] = COLOURS[WALL]
    tiles[DOOR, :, 1:7] = COLOURS[DOOR]
    tiles[KEY, 3:5, 1:7], tiles[KEY, 1:7, 1:3] = COLOURS[KEY], COLOURS[KEY]
    tiles[COIN][small] = COLOURS[COIN]
    tiles[EXIT] = COLOURS[EXIT]
    tiles[AGENT][disc] = tiles[BEARER][disc] = COLOURS[AGENT]
    tiles[BEARER][small] = COLOURS[BEARER]
    return tiles.reshape(len(COLOURS), TILES, 3 * TILES)


class Grid(World[GridConfig]):
    """Rewards: +1 for the key, for opening the door and for each coin, +3 at the exit, where the episode ends, and
    -0.02 for each step. Actions: up, right, down, left; who walks on a thing takes it."""

    actions = 4

    @property
    def state_size(self) -> int:
        return 6 * (TILES - 2) ** 2 + 1

    def make_arrays(self, count: int) -> Arrays:
        return {
            "tiles": np.zeros((count, TILES, TILES), np.uint8),
            "agent": np.ones((count, 2), np.int64),
            "key": np.zeros(count, bool),
        }

    def start(self, rows: np.ndarray) -> None:
        tiles = np.zeros((len(rows), TILES, TILES), np.uint8)
        tiles[:, [0, -1]] = tiles[:, :, [0, -1]] = WALL
        every, numbers = np.arange(len(rows)), self.draw(rows, 2 + TILES * TILES)
        wall, door = 3 + (2 * numbers[:, 0]).astype(int), 1 + (6 * numbers[:, 1]).astype(int)
        tiles[every, :, wall] = WALL
        tiles[every, door, wall] = DOOR
        # A random order of the floor of each room: other tiles, and those of the other room, come last.
        order, column = numbers[:, 2:], np.tile(np.arange(TILES), TILES)
        order[every, TILES * door + wall + 1] += 0.999  # behind the door, where an exit would be in the way
        flat = tiles.reshape(len(rows), -1)
        rooms = [(flat != FLOOR) | side for side in (column >= wall[:, None], column <= wall[:, None])]
        left, right = ((order + room).argsort(1) for room in rooms)
        in_left = self.config.coins // 3
        self.arrays["agent"][rows] = np.stack(np.divmod(left[:, 0], TILES), axis=1)
        flat[every, left[:, 1]], flat[every, right[:, 0]] = KEY, EXIT
        for number in range(self.config.coins):
            cells = left[:, 2 + number] if number < in_left else right[:, 1 + number - in_left]
            flat[every, cells] = COIN
        self.arrays["tiles"][rows], self.arrays["key"][rows] = tiles, False

    def advance(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        every, agent, key = np.arange(self.count), self.arrays["agent"], self.arrays["key"]
        there = agent + MOVES[actions.astype(np.int64)]
        tile = self.arrays["tiles"][every, there[:, 0], there[:, 1]]
        free = (tile != WALL) & ((tile != DOOR) | key)
        rewards = np.where(free, REWARDS[tile], 0.0) - STEP_COST
        agent[free] = there[free]
        key |= free & (tile == KEY)
        taken = free & (tile != EXIT)
        self.arrays["tiles"][every[taken], there[taken, 0], there[taken, 1]] = FLOOR
        return rewards, free & (tile == EXIT)

    def render(self) -> np.ndarray:
        every, agent = np.arange(self.count), self.arrays["agent"]
        shown = self.arrays["tiles"].copy()
        shown[every, agent[:, 0], agent[:, 1]] = np.where(self.arrays["key"], BEARER, AGENT)
        # (N, 8, 1, 8) kinds with (8, 1) rows of pixels -> (N, 8, 8, 8, 24): tile rows, pixel rows, tile columns
        pixels = make_tiles()[shown[:, :, None, :], np.arange(TILES)[:, None]]
        return pixels.reshape(self.count, SIDE, SIDE, 3)

    def describe(self) -> np.ndarray:
        """Where walls, door, key, coins, exit and agent are (one-hot), and whether the agent has the key."""
        inner = self.arrays["tiles"][:, 1:-1, 1:-1]
        planes = np.stack([inner == kind for kind in (WALL, DOOR, KEY, COIN, EXIT, AGENT)], axis=1)
        row, column = self.arrays["agent"].T - 1
        planes[np.arange(self.count), -1, row, column] = True
        return np.concatenate((planes.reshape(self.count, -1), self.arrays["key"][:, None]), axis=1).astype(np.float32)

    def act_expert(self) -> np.ndarray:
        """Take what can be reached, the nearest first: key, door and coins; then go to the exit."""
        tiles, every, agent = self.arrays["tiles"], np.arange(self.count), self.arrays["agent"]
        locked = (tiles == DOOR) & ~self.arrays["key"][:, None, None]
        start = np.zeros(tiles.shape, bool)
        start[every, agent[:, 0], agent[:, 1]] = True
        free = (tiles != WALL) & ~locked
        distance = measure_distance(start, free & (tiles != EXIT))
        wanted = np.isin(tiles, (DOOR, KEY, COIN)) & (distance < FAR)
        target = np.where(wanted.any((1, 2), keepdims=True), wanted, tiles == EXIT)
        nearest = np.where(target, distance, 2 * FAR).reshape(self.count, -1).argmin(1)
        goal = np.zeros(tiles.shape, bool)
        goal.reshape(self.count, -1)[every, nearest] = True
        to_goal = measure_distance(goal, free & ((tiles != EXIT) | goal))
        neighbours = agent[:, None] + MOVES  # (N, 4, 2)
        return to_goal[every[:, None], neighbours[:, :, 0], neighbours[:, :, 1]].argmin(1)


def measure_distance(start: np.ndarray, free: np.ndarray) -> np.ndarray:
    """The number of steps from the marked tiles to each (breadth-first search): (N, 8, 8), `FAR` where there is no
    way."""
    distance = np.where(start, 0, FAR)
    while True:
        near = np.full_like(distance, FAR)
        near[:, 1:-1, 1:-1] = np.minimum(
            np.minimum(distance[:, :-2, 1:-1], distance[:, 2:, 1:-1]),
            np.minimum(distance[:, 1:-1, :-2], distance[:, 1:-1, 2:]),
        )
        closer = np.where(free & (near + 1 < distance) & (near < FAR), near + 1, distance)
        if (closer == distance).all():
            return distance
        distance = closer
