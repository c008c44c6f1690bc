"""The replay buffer (Lin 1992): the last steps of N copies of an environment, from which batches are drawn at random.

Each observation is stored once: the next observation of a step is that of the row after it, and a stack of frames is
put together when it is drawn. A row in which an episode has ended holds its last observation, from which no action was
taken.

Letters: R rows of the ring, N copies, B drawn steps, L steps of a window, k stacked frames.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from headwise.worlds.spaces import Spaces

Arrays = dict[str, np.ndarray]


class Transitions(NamedTuple):
    """Steps that were drawn, with what came of each within n steps."""

    observations: np.ndarray  # (B, k * channels, H, W) bytes, or (B, k * D)
    actions: np.ndarray  # (B,) or (B, A)
    rewards: np.ndarray  # (B,) r_t + γ r_(t+1) + ... of n steps, or of fewer where the episode ended
    discounts: np.ndarray  # (B,) γ^n of what follows; 0 where the episode terminated
    next_observations: np.ndarray  # after n steps


class Replay:
    """A replay buffer: a ring of `rows` steps of all copies. Observations are put with their channels first."""

    def __init__(self, rows: int, copies: int, observation: np.ndarray, spaces: Spaces):
        self.rows, self.copies, self.added = rows, copies, 0
        shape = (rows, copies)
        actions = np.zeros(shape, np.int64) if spaces.discrete else np.zeros((*shape, spaces.actions), np.float32)
        self.arrays: Arrays = {
            "observations": np.zeros((*shape, *observation.shape[1:]), observation.dtype),
            "actions": actions,
            "rewards": np.zeros(shape, np.float32),
            "terminated": np.zeros(shape, bool),
            "steps": np.zeros(shape, np.int32),  # numbers of the steps in their episodes
            "last": np.zeros(shape, bool),  # rows with the last observation of an episode
        }

    def __len__(self) -> int:
        """The number of rows that are kept."""
        return min(self.added, self.rows)

    def add(self, **values: np.ndarray) -> None:
        """Add a step of all copies, by the names of `arrays`."""
        for name, array in self.arrays.items():
            array[self.added % self.rows] = values[name]
        self.added += 1

    def draw(self, count: int, ahead: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Rows (by when they were added) and copies of so many steps, drawn uniformly from those that `ahead` rows
        follow and from which an action was taken."""
        times = np.arange(self.added - len(self), self.added - ahead)
        known = np.flatnonzero(~self.arrays["last"][times % self.rows])
        chosen = known[random.integers(len(known), size=count)]
        return times[chosen // self.copies], chosen % self.copies

    def stack(self, times: np.ndarray, copies: np.ndarray, frames: int) -> np.ndarray:
        """The observations up to each of these steps, the oldest first: (..., k * channels, H, W). At the beginning of
        an episode its first observation is repeated."""
        steps = self.arrays["steps"][times % self.rows, copies]
        first = np.maximum(times - steps, self.added - len(self))
        wanted = np.maximum(times[..., None] - np.arange(frames)[::-1], first[..., None])  # (..., k)
        stacked = self.arrays["observations"][wanted % self.rows, copies[..., None]]
        channels, *sides = stacked.shape[times.ndim + 1 :]
        return stacked.reshape(*times.shape, frames * channels, *sides)

    def draw_transitions(
        self, count: int, frames: int, discount: float, n_step: int, random: np.random.Generator
    ) -> Transitions:
        """Draw steps with their returns of n steps."""
        times, copies = self.draw(count, n_step, random)
        rewards, discounts = np.zeros(count, np.float64), np.ones(count)
        following, running = times.copy(), np.ones(count, bool)
        for _ in range(n_step):
            rows = following % self.rows
            running &= ~self.arrays["last"][rows, copies]
            rewards += np.where(running, discounts * self.arrays["rewards"][rows, copies], 0)
            terminated = running & self.arrays["terminated"][rows, copies]
            discounts *= np.where(running, np.where(terminated, 0, discount), 1)
            following += running
        return Transitions(
            self.stack(times, copies, frames),
            self.arrays["actions"][times % self.rows, copies],
            rewards.astype(np.float32),
            discounts.astype(np.float32),
            self.stack(following, copies, frames),
        )

    def draw_windows(
        self, count: int, length: int, frames: int, random: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Draw windows of consecutive observations, (B, L, ...), and which of them are of the same episode as the
        first, (B, L)."""
        times, copies = self.draw(count, length - 1, random)
        wanted, ahead = times[:, None] + np.arange(length), np.arange(length)
        copies = np.broadcast_to(copies[:, None], wanted.shape)
        steps = self.arrays["steps"][wanted % self.rows, copies]
        return self.stack(wanted, copies, frames), steps == steps[:, :1] + ahead

    def dump(self) -> Arrays:
        """The rows that are kept, as arrays; frames are compressed, for they are mostly of a few colours."""
        kept = {name: array[: len(self)] for name, array in self.arrays.items()}
        observations = kept.pop("observations")
        if observations.dtype == np.uint8:
            packed = zlib.compress(np.ascontiguousarray(observations).data, 1)
            kept["frames"] = np.frombuffer(packed, np.uint8)
        else:
            kept["observations"] = observations
        return {**kept, "added": np.array([self.added])}

    def load(self, saved: Mapping[str, np.ndarray]) -> None:
        """Restore what `dump` returned; raises ValueError if it is of another buffer."""
        self.added = int(saved["added"][0])
        for name, array in self.arrays.items():
            kept = array[: len(self)]
            if name == "observations" and "frames" in saved:
                reader = zlib.decompressobj()
                data = reader.decompress(saved["frames"].tobytes(), kept.nbytes)
                kept[...] = np.frombuffer(data, np.uint8).reshape(kept.shape)
            elif saved[name].shape != kept.shape:
                raise ValueError(f"{name} are {saved[name].shape}, and the replay buffer has {kept.shape}")
            else:
                kept[...] = saved[name]


def resize_frames(frames: np.ndarray, side: int) -> np.ndarray:
    """Frames (N, H, W, channels) of bytes, averaged over areas to `side` x `side` pixels, with their channels first; 0
    leaves the size as it is.

    >>> resize_frames(np.arange(16, dtype=np.uint8).reshape(1, 4, 4, 1), 2)[0, 0].tolist()
    [[3, 5], [11, 13]]
    """
    first = frames.transpose(0, 3, 1, 2)  # (N, H, W, channels) -> (N, channels, H, W)
    if not side or frames.shape[1:3] == (side, side):
        return np.ascontiguousarray(first)
    rows, columns = (make_area_weights(size, side) for size in frames.shape[1:3])
    averaged = rows @ first.astype(np.float32) @ columns.T
    rounded: np.ndarray = np.floor(averaged + 0.5).astype(np.uint8)
    return rounded


def make_area_weights(size: int, side: int) -> np.ndarray:
    """The share of each of `size` pixels in each of `side` larger ones, (side, size); rows sum to 1."""
    edges = np.arange(side + 1) * (size / side)
    pixels = np.arange(size)
    shared = np.minimum(edges[1:, None], pixels + 1) - np.maximum(edges[:-1, None], pixels)
    return (shared.clip(0) * (side / size)).astype(np.float32)


class FrameStack:
    """A frame stack: the last k observations of each of N copies, the oldest first; at the beginning of an episode its
    first one k times."""

    def __init__(self, frames: int, first: np.ndarray):
        self.array = np.repeat(first[:, None], frames, axis=1)  # (N, ...) -> (N, k, ...)

    def push(self, observations: np.ndarray, fresh: np.ndarray) -> None:
        """Add the next observations, (N, ...); `fresh` (N,) are the first of an episode."""
        self.array[:, :-1] = self.array[:, 1:]
        self.array[:, -1] = observations
        self.array[fresh] = observations[fresh][:, None]

    @property
    def newest(self) -> np.ndarray:
        newest: np.ndarray = self.array[:, -1]
        return newest

    @property
    def stacked(self) -> np.ndarray:
        """(N, k * channels, H, W), or (N, k * D)."""
        return self.array.reshape(len(self.array), -1, *self.array.shape[3:])
