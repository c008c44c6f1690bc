"""A replay source: batches from a replay buffer, which the learner fills by acting in copies of an environment.

It stands beside the data sets: the training loop asks it for batches like any other. After each step of all copies
there is a fixed number of batches. All that the next batches depend on is part of a checkpoint: the replay buffer, and
in our own worlds their state, so that a run is resumed bit by bit. In other environments, whose state cannot be saved,
episodes that were not finished are truncated, and new ones begin.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, Protocol

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from headwise.errors import UserError
from headwise.models.agent_fields import Agent
from headwise.tasks.base import TaskConfig
from headwise.train.config import TrainConfig
from headwise.worlds.replay import FrameStack, Replay, resize_frames
from headwise.worlds.spaces import EpisodeEncoder, Spaces

EPOCH = 1000  # batches
TRAINING_SEED = 10_000_000  # of the first episode; evaluations and logs have lower ones
SEEDS_OF_RUN = 1_000_000  # between the first episodes of runs with different seeds


class ReplayFields(TaskConfig):
    """Settings of acting and of the replay buffer."""

    environments: int = Field(8, ge=1)  # copies that are stepped together
    updates: int = Field(1, ge=1)  # batches after each step of all copies
    capacity: int = Field(100_000, ge=1)  # frames of the replay buffer
    warmup: int = Field(1000, ge=1)  # frames of random actions before the first batch
    discount: float = Field(0.99, ge=0, le=1)  # γ
    n_step: int = Field(1, ge=1)  # rewards before what follows is estimated
    stack: int = Field(1, ge=1)  # observations that the agent sees at once
    frame: int = Field(0, ge=0)  # pixels of a side to which frames are resized; 0: as they are


class Explorer(Protocol):
    """A task as its replay source sees it."""

    @property
    def config(self) -> ReplayFields: ...
    @property
    def encoder(self) -> EpisodeEncoder: ...
    def explore(self, model: Any, observations: Tensor, played: int, random: np.random.Generator) -> np.ndarray: ...


@dataclass(frozen=True, eq=False)
class ReplayBatch:
    """Steps that were drawn, with what came of each; and windows of consecutive frames, where a loss needs them."""

    observations: Tensor  # (B, k * channels, H, W) bytes, or (B, k * D)
    actions: Tensor  # (B,) or (B, A) from -1 to 1
    rewards: Tensor  # (B,) of n steps
    discounts: Tensor  # (B,) of what follows
    next_observations: Tensor
    windows: Tensor  # (W, L, k * channels, H, W) bytes
    keep: Tensor  # (W, L) True = of the same episode as the first
    tokens: int  # frames that were played for this batch, which the training loop counts as tokens of texts

    def __len__(self) -> int:
        return len(self.rewards)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> ReplayBatch:
        tensors = {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}
        moved: Any = {name: tensor.to(device, non_blocking=non_blocking) for name, tensor in tensors.items()}
        return replace(self, **moved)


class ReplaySource:
    """Batches of the replay buffer of a learner that acts; `start` gives it the model that acts."""

    unit = "frames"  # counted by the training loop

    def __init__(self, task: Explorer, seed: int, train: TrainConfig):
        self.task, self.seed, self.size = task, seed, train.batch_size or 32
        self.config = task.config
        if train.accumulate > 1:
            raise UserError(
                "train.accumulate: batches depend on what was learnt from those before; raise train.batch_size instead"
            )

    @property
    def summary(self) -> str:
        config = self.config
        return (
            f"plays in {config.environments} copies of {self.task.encoder.environment}; for each step of all, "
            f"{config.updates} x {self.size} steps of the last {config.capacity:,} frames"
        )

    def plan(self, epoch: int) -> Sequence[np.ndarray]:
        """The numbers of the batches."""
        return list(np.arange(epoch * EPOCH, (epoch + 1) * EPOCH)[:, None])

    def start(self, model: nn.Module) -> None:
        """Begin to play."""
        from headwise.worlds.environments import Environment

        assert isinstance(model, Agent)
        self.model, encoder, copies = model, self.task.encoder, self.config.environments
        self.window = (model.contrast.windows, model.contrast.window)
        self.warmup, rows = count_rows(self.config, model)
        place = Environment.of(encoder.environment, encoder.settings)
        self.environments: Any = place.make(copies)
        self.saves_world = place.is_own
        self.played = 0  # frames
        self.steps, self.last = np.zeros(copies, np.int32), np.zeros(copies, bool)
        self.stack = FrameStack(self.config.stack, self._reset(0))
        self.replay = Replay(rows, copies, self.stack.newest, encoder.spaces)

    def _reset(self, number: int) -> np.ndarray:
        first = TRAINING_SEED + self.seed * SEEDS_OF_RUN + number
        observations, _ = self.environments.reset(seed=[first + copy for copy in range(self.config.environments)])
        return self._prepare(observations)

    def _prepare(self, observations: np.ndarray) -> np.ndarray:
        return prepare_observations(observations, self.task.encoder.spaces, self.config.frame)

    def batch(self, numbers: np.ndarray) -> ReplayBatch:
        """Play, and draw a batch."""
        number, before = int(numbers[0]), self.played
        while self.replay.added < self.warmup:
            self._step(self._act_at_random())
        if number % self.config.updates == 0:
            random = self._make_random(1)
            observations = torch.from_numpy(self.stack.stacked)
            self._step(self.task.explore(self.model, observations, self.played, random))
        random, config = np.random.default_rng([self.seed, 3, number]), self.config
        drawn = self.replay.draw_transitions(self.size, config.stack, config.discount, config.n_step, random)
        windows, keep = self.replay.draw_windows(*self.window, config.stack, random)
        arrays = {**drawn._asdict(), "windows": windows, "keep": keep}
        tensors: Any = {name: torch.from_numpy(array) for name, array in arrays.items()}
        return ReplayBatch(**tensors, tokens=self.played - before)

    def _make_random(self, purpose: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, purpose, self.replay.added])

    def _act_at_random(self) -> np.ndarray:
        return draw_actions(self.task.encoder.spaces, self.config.environments, self._make_random(2))

    def _step(self, actions: np.ndarray) -> None:
        """Take a step in all copies, with actions from -1 to 1. Where an episode has ended, it begins the next one."""
        observations, rewards, terminated, truncated, _ = self.environments.step(
            self.task.encoder.unscale_actions(actions)
        )
        self._add(actions=actions, rewards=rewards, terminated=terminated)
        self.played += int((~self.last).sum())
        fresh = self.last
        self.steps = np.where(fresh, 0, self.steps + 1).astype(np.int32)
        self.last = (terminated | truncated) & ~fresh
        self.stack.push(self._prepare(observations), fresh)

    def _add(self, **values: np.ndarray) -> None:
        self.replay.add(observations=self.stack.newest, steps=self.steps, last=self.last, **values)

    def dump_state(self) -> dict[str, Tensor]:
        acting = {"stack": self.stack.array, "steps": self.steps, "last": self.last, "played": np.array([self.played])}
        arrays = {f"replay.{name}": array for name, array in self.replay.dump().items()}
        arrays |= {f"acting.{name}": array for name, array in acting.items()}
        if self.saves_world:
            state = self.environments.unwrapped.save_state()
            random = np.frombuffer(json.dumps(state["random"]).encode(), np.uint8)
            arrays |= {"random": random, "ended": state["ended"]}
            arrays |= {f"world.{name}": array for name, array in state["world"].items()}
        return {name: to_tensor(array) for name, array in arrays.items()}

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        groups: dict[str, dict[str, np.ndarray]] = {"replay": {}, "acting": {}, "world": {}}
        for name, tensor in tensors.items():
            group, _, key = name.rpartition(".")
            groups.setdefault(group, {})[key] = tensor.numpy().copy()
        try:
            self.replay.load(groups["replay"])
            acting = groups["acting"]
            self.stack.array[...], self.steps[...], self.last[...] = (acting[key] for key in ("stack", "steps", "last"))
            self.played = int(acting["played"][0])
            if self.saves_world:
                self._restore_world(groups["world"], groups[""])
            else:
                self._begin_anew()
        except (KeyError, ValueError) as error:
            raise UserError(
                f"the replay buffer of the checkpoint does not fit this run ({error}); train anew"
            ) from None

    def _restore_world(self, world: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> None:
        own = self.environments.unwrapped
        arrays = {name: array.view(own.world.arrays[name].dtype) for name, array in world.items()}
        random = json.loads(other["random"].tobytes())
        own.restore_state({"world": arrays, "random": random, "ended": other["ended"]})

    def _begin_anew(self) -> None:
        """Truncate the unfinished episodes, whose environments cannot be restored, and begin new ones."""
        nothing = draw_actions(self.task.encoder.spaces, self.config.environments, self._make_random(2))
        none = np.zeros(self.config.environments)
        self.last[:] = True
        self._add(actions=nothing, rewards=none, terminated=none.astype(bool))
        self.steps[:], self.last[:] = 0, False
        self.stack = FrameStack(self.config.stack, self._reset(self.replay.added * self.config.environments))


def count_rows(config: ReplayFields, model: Agent) -> tuple[int, int]:
    """The rows of the replay buffer that random actions fill, and all of them; refuses too few."""
    copies = config.environments
    warmup = max(ceil(config.warmup / copies), config.n_step + 1, model.contrast.window)
    rows = ceil(config.capacity / copies)
    if rows <= warmup:
        raise UserError(f"task.capacity: there must be room for more than {warmup * copies:,} frames; raise it")
    return warmup, rows


def prepare_observations(observations: np.ndarray, spaces: Spaces, side: int) -> np.ndarray:
    """Frames of `side` x `side` pixels with their channels first; numbers as they are."""
    return resize_frames(observations, side) if spaces.pixels else observations.astype(np.float32)


def draw_actions(spaces: Spaces, count: int, random: np.random.Generator) -> np.ndarray:
    """Uniform actions; continuous ones from -1 to 1."""
    if spaces.discrete:
        return random.integers(spaces.actions, size=count)
    return random.uniform(-1, 1, (count, spaces.actions)).astype(np.float32)


def to_tensor(array: np.ndarray) -> Tensor:
    """A copy of an array; numbers without a sign of 64 bits as such with one, of the same bits."""
    signed = array.view(np.int64) if array.dtype == np.uint64 else array
    return torch.from_numpy(signed.copy())
