"""Base of our own worlds: N copies of an environment in NumPy arrays, stepped and drawn together.

Letters: N copies, D numbers of a state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Generic, Literal, NamedTuple, TypeVar

import numpy as np
from pydantic import Field

from headwise.config.base import Config

SIDE = 64  # pixels of a frame
GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # increment of SplitMix64
Arrays = dict[str, np.ndarray]


class WorldConfig(Config):
    """The settings of a world: keyword arguments of `gymnasium.make`."""

    observe: Literal["pixels", "state"] = "pixels"  # frames of 64 x 64 x 3 bytes, or the numbers they are drawn from
    max_steps: int = Field(200, ge=1)  # after which an episode is truncated


Settings = TypeVar("Settings", bound=WorldConfig)


class StepResult(NamedTuple):
    """What a step of all copies gives: (N,) each."""

    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray


def hash_numbers(seeds: np.ndarray, first: np.ndarray, count: int) -> np.ndarray:
    """`count` uniform numbers in [0, 1) of each seed (N,), from number `first` (N,) on: SplitMix64 (Steele et al.
    2014)."""
    steps = first[:, None] + np.arange(1, count + 1, dtype=np.uint64)
    with np.errstate(over="ignore"):  # modulo 2^64, as intended
        bits = seeds[:, None] * np.uint64(0xD1342543DE82EF95) + steps * GOLDEN
        bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((bits ^ (bits >> np.uint64(31))) >> np.uint64(11)).astype(np.float64) * 2.0**-53


class World(ABC, Generic[Settings]):
    """N copies of an environment. All that changes is in `arrays`, by name, with a row for each copy; a copy depends on
    its seed and its actions alone, so N copies are equal to N single ones."""

    actions: ClassVar[int] = 0  # number of discrete actions; 0: continuous
    action_low: ClassVar[tuple[float, ...]] = ()  # of continuous actions
    action_high: ClassVar[tuple[float, ...]] = ()

    def __init__(self, config: Settings, count: int = 1):
        self.config, self.count = config, count
        zeros = np.zeros(count, np.uint64)
        self.arrays: Arrays = {"seed": zeros, "draws": zeros.copy(), "steps": np.zeros(count, np.int64)}
        self.arrays |= self.make_arrays(count)
        self.reset(np.arange(count), zeros)

    @property
    @abstractmethod
    def state_size(self) -> int:
        """D, the numbers of `describe`."""

    @abstractmethod
    def make_arrays(self, count: int) -> Arrays:
        """The arrays of this world, with `count` rows of any content."""

    @abstractmethod
    def start(self, rows: np.ndarray) -> None:
        """Begin an episode in these copies."""

    @abstractmethod
    def advance(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Take a step in all copies: rewards (N,), and whether the episode has ended (N,)."""

    @abstractmethod
    def render(self) -> np.ndarray:
        """Draw all copies: (N, 64, 64, 3) bytes."""

    @abstractmethod
    def describe(self) -> np.ndarray:
        """The state as numbers: (N, D) float32."""

    @abstractmethod
    def act_expert(self) -> np.ndarray:
        """The actions of a scripted expert, which knows the state: (N,) integers or (N, A) float32."""

    def reset(self, rows: np.ndarray, seeds: np.ndarray) -> None:
        """Begin an episode in these copies with these seeds."""
        self.arrays["seed"][rows], self.arrays["draws"][rows], self.arrays["steps"][rows] = seeds, 0, 0
        self.start(rows)

    def step(self, actions: np.ndarray) -> StepResult:
        """Take a step in all copies."""
        rewards, terminated = self.advance(actions)
        self.arrays["steps"] += 1
        truncated = (self.arrays["steps"] >= self.config.max_steps) & ~terminated
        return StepResult(rewards.astype(np.float64), terminated, truncated)

    def observe(self) -> np.ndarray:
        """What an agent sees: frames, or states."""
        return self.render() if self.config.observe == "pixels" else self.describe()

    def draw(self, rows: np.ndarray, count: int = 1) -> np.ndarray:
        """Uniform random numbers in [0, 1) for these copies, (rows, count), which depend on each copy's seed and on how
        many it has drawn, so that a state of two numbers says what comes next."""
        draws = self.arrays["draws"][rows]
        self.arrays["draws"][rows] = draws + np.uint64(count)
        return hash_numbers(self.arrays["seed"][rows], draws, count)

    def draw_aside(self, rows: np.ndarray, count: int, salt: int) -> np.ndarray:
        """Random numbers for what has no effect, such as colours: what else is drawn stays the same."""
        seeds = self.arrays["seed"][rows] ^ np.uint64(salt << 32)
        return hash_numbers(seeds, np.zeros(len(rows), np.uint64), count)

    def save_state(self) -> Arrays:
        """A copy of the state; `restore_state` continues from it bit by bit."""
        return {name: array.copy() for name, array in self.arrays.items()}

    def restore_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from a saved state of as many copies."""
        if state.keys() != self.arrays.keys() or any(
            state[name].shape != array.shape or state[name].dtype != array.dtype for name, array in self.arrays.items()
        ):
            raise ValueError(f"this is no state of {self.count} copies of {type(self).__name__}")
        for name, array in self.arrays.items():
            array[...] = state[name]
