"""Episodes: what an agent saw, did and was given, one after the other in shared arrays.

Letters: E episodes, S steps of all of them, T steps of one, A numbers of an action.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

ARRAYS = ("observations", "actions", "rewards", "terminated")


@dataclass(frozen=True, eq=False)
class Episode:
    """One episode: the observation before each action, the action, and the reward after it."""

    observations: np.ndarray  # (T, ...)
    actions: np.ndarray  # (T,) integers or (T, A) float32
    rewards: np.ndarray  # (T,) float32
    terminated: bool  # whether it ended by itself; else it was truncated

    def __len__(self) -> int:
        return len(self.rewards)

    @property
    def total(self) -> float:
        """The return: the sum of rewards."""
        return float(self.rewards.sum(dtype=np.float64))


@dataclass(frozen=True, eq=False)
class Episodes:
    """Episodes of one environment: step i of episode e is row `starts[e] + i` of the arrays."""

    observations: np.ndarray  # (S, ...)
    actions: np.ndarray
    rewards: np.ndarray
    terminated: np.ndarray  # (E,)
    starts: np.ndarray  # (E + 1,): the last is S, if no episode was left out
    ends: np.ndarray  # (E,)

    @classmethod
    def join(cls, parts: Sequence[Episode]) -> Episodes:
        """Put episodes one after the other."""
        observations, actions, rewards = (
            np.concatenate([getattr(part, name) for part in parts]) for name in ARRAYS[:3]
        )
        ends = np.cumsum([len(part) for part in parts])
        terminated = np.array([part.terminated for part in parts])
        return cls(observations, actions, rewards, terminated, ends - [len(part) for part in parts], ends)

    @classmethod
    def concatenate(cls, parts: Sequence[Episodes]) -> Episodes:
        """Episodes of several files."""
        arrays = [np.concatenate([getattr(part, name) for part in parts]) for name in ARRAYS]
        before = np.cumsum([0, *(len(part.rewards) for part in parts[:-1])])
        limits = [
            np.concatenate([getattr(part, name) + shift for part, shift in zip(parts, before, strict=True)])
            for name in ("starts", "ends")
        ]
        return cls(*arrays, *limits)

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, number: int) -> Episode:
        rows = slice(self.starts[number], self.ends[number])
        arrays = (self.observations[rows], self.actions[rows], self.rewards[rows])
        return Episode(*arrays, bool(self.terminated[number]))

    def __iter__(self) -> Iterator[Episode]:
        return (self[number] for number in range(len(self)))

    @property
    def lengths(self) -> np.ndarray:
        return self.ends - self.starts

    @property
    def returns(self) -> np.ndarray:
        """The sum of rewards of each episode, (E,)."""
        return np.array([episode.total for episode in self])

    def take(self, numbers: Iterable[int]) -> Episodes:
        """Some of the episodes, in the same arrays."""
        chosen = np.array(list(numbers), np.int64)
        arrays = (self.observations, self.actions, self.rewards)
        return Episodes(*arrays, self.terminated[chosen], self.starts[chosen], self.ends[chosen])

    def take_best(self, fraction: float) -> Episodes:
        """The share of the episodes with the highest returns, in their order."""
        count = max(1, round(fraction * len(self)))
        return self.take(sorted(np.argsort(-self.returns, kind="stable")[:count].tolist()))


@final
@dataclass(frozen=True)
class EpisodeSeeds:
    """Episodes that are still to be played: each begins with its seed."""

    seeds: Sequence[int]

    def __len__(self) -> int:
        return len(self.seeds)

    def take(self, numbers: Iterable[int]) -> EpisodeSeeds:
        return EpisodeSeeds([self.seeds[number] for number in numbers])


def compute_returns_to_go(rewards: np.ndarray) -> np.ndarray:
    """The returns to go: the sum of this and all later rewards at each step.

    >>> compute_returns_to_go(np.array([1.0, 0.0, 2.0])).tolist()
    [3.0, 2.0, 2.0]
    """
    return np.cumsum(rewards[::-1], dtype=np.float64)[::-1]
