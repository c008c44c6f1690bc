"""Rollouts: play episodes in copies of an environment that are stepped together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from headwise.errors import UserError
from headwise.worlds.environments import Environment, WorldVectorEnv
from headwise.worlds.episodes import Episode
from headwise.worlds.spaces import Spaces
from headwise.worlds.step_view import StepView

AT_ONCE = 64  # copies that are stepped together


class Policy(Protocol):
    """Acts in N copies of an environment. `rewards` are those of the last step, zeros before the first."""

    def start(self, environments: Any, seeds: Sequence[int]) -> None: ...
    def act(self, observations: np.ndarray, rewards: np.ndarray) -> np.ndarray: ...


class RandomPolicy:
    """Uniform actions; unbounded ones are normal."""

    def start(self, environments: Any, seeds: Sequence[int]) -> None:
        self.spaces = Spaces.of(environments)
        self.generators = [np.random.default_rng([seed, 1]) for seed in seeds]

    def act(self, observations: np.ndarray, rewards: np.ndarray) -> np.ndarray:
        if self.spaces.discrete:
            return np.array([generator.integers(self.spaces.actions) for generator in self.generators])
        low, high = np.array(self.spaces.low), np.array(self.spaces.high)
        bounded = np.isfinite(low) & np.isfinite(high)
        low, high = np.where(bounded, low, 0), np.where(bounded, high, 1)
        rows = [
            np.where(bounded, low + (high - low) * generator.random(len(low)), generator.standard_normal(len(low)))
            for generator in self.generators
        ]
        return np.array(rows, np.float32)


class ExpertPolicy:
    """A scripted expert: that of one of our worlds, or a controller of a classic control task."""

    def start(self, environments: Any, seeds: Sequence[int]) -> None:
        own = environments.unwrapped
        name = environments.spec.id if environments.spec else ""
        if not isinstance(own, WorldVectorEnv) and name not in CONTROLLERS:
            known = ", ".join(("our own worlds", *CONTROLLERS))
            raise UserError(f"{name}: has no scripted expert; there are experts for {known}")
        self.world = own.world if isinstance(own, WorldVectorEnv) else None
        self.control = CONTROLLERS.get(name)

    def act(self, observations: np.ndarray, rewards: np.ndarray) -> np.ndarray:
        if self.world is not None:
            return self.world.act_expert()
        assert self.control is not None
        return self.control(observations)


class NoisyPolicy:
    """The expert, who acts at random with a probability that is drawn for each episode, uniform in 0 to 1: mixed
    skills."""

    def __init__(self) -> None:
        self.expert, self.random = ExpertPolicy(), RandomPolicy()

    def start(self, environments: Any, seeds: Sequence[int]) -> None:
        self.expert.start(environments, seeds)
        self.random.start(environments, seeds)
        self.generators = [np.random.default_rng([seed, 2]) for seed in seeds]
        self.noise = np.array([generator.random() for generator in self.generators])

    def act(self, observations: np.ndarray, rewards: np.ndarray) -> np.ndarray:
        skilled, random = self.expert.act(observations, rewards), self.random.act(observations, rewards)
        astray = np.array([generator.random() for generator in self.generators]) < self.noise
        return np.where(astray.reshape(-1, *[1] * (skilled.ndim - 1)), random, skilled)


def balance_pole(x: np.ndarray) -> np.ndarray:
    """CartPole: push to the side to which the pole falls, with a little care for the cart's place."""
    return (x @ np.array([0.1, 0.3, 3.0, 1.0]) > 0).astype(np.int64)


def swing_pendulum(x: np.ndarray) -> np.ndarray:
    """Pendulum: pump energy until the pendulum is near the top (Åström & Furuta 2000), then balance it (PD)."""
    cos, sin, speed = x.T
    angle, lack = np.arctan2(sin, cos), 15.0 * (1 - cos) - speed**2 / 2
    pump = np.where(speed >= 0, 2.0, -2.0) * np.where(lack > 0, 1, -0.3)
    balance = -(12 * angle + 3 * speed)
    return np.clip(np.where((cos > 0.85) & (np.abs(speed) < 4), balance, pump), -2, 2)[:, None].astype(np.float32)


CONTROLLERS: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "CartPole-v1": balance_pole,
    "Pendulum-v1": swing_pendulum,
    "MountainCar-v0": lambda x: np.where(x[:, 1] >= 0, 2, 0),  # push in the direction of the motion
    "MountainCarContinuous-v0": lambda x: np.sign(x[:, 1:] + 1e-9).astype(np.float32),
    "Acrobot-v1": lambda x: np.where(x[:, 5] >= 0, 2, 0),  # swing the second joint with its motion
}
POLICIES: Mapping[str, Callable[[], Policy]] = {"random": RandomPolicy, "expert": ExpertPolicy, "noisy": NoisyPolicy}


def ignore() -> None:
    """The default of `before_step`: do nothing."""


class Step(NamedTuple):
    """A step of all copies. `running` marks copies whose episode had not ended before it."""

    observations: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray  # (N,) float32
    terminated: np.ndarray  # (N,)
    running: np.ndarray  # (N,)


def take_steps(
    environments: Any, policy: Policy, seeds: Sequence[int], before_step: Callable[[], None] = ignore
) -> Iterator[Step]:
    """Play one episode in each copy, begun with its seed, until all have ended."""
    spaces, count = Spaces.of(environments), environments.num_envs
    observation, _ = environments.reset(seed=[int(seed) for seed in seeds])
    policy.start(environments, seeds)
    rewards, running = np.zeros(count), np.ones(count, bool)
    while running.any():
        before_step()
        seen = np.array(observation)
        actions = policy.act(seen, rewards).astype(np.int64 if spaces.discrete else np.float32)
        observation, rewards, ended, stopped, _ = environments.step(actions)
        yield Step(seen, actions, rewards.astype(np.float32), running & ended, running)
        running = running & ~(ended | stopped)


def play(
    environments: Any, policy: Policy, seeds: Sequence[int], before_step: Callable[[], None] = ignore
) -> list[Episode]:
    """A rollout: play one episode in each copy, begun with its seed."""
    steps = list(take_steps(environments, policy, seeds, before_step))
    lengths = np.sum([step.running for step in steps], axis=0)
    terminated = np.any([step.terminated for step in steps], axis=0)

    def cut(name: str, row: int) -> np.ndarray:
        return np.stack([getattr(step, name)[row] for step in steps[: lengths[row]]])

    return [
        Episode(cut("observations", row), cut("actions", row), cut("rewards", row), bool(terminated[row]))
        for row in range(len(lengths))
    ]


def measure_returns(environments: Any, policy: Policy, seeds: Sequence[int]) -> tuple[np.ndarray, int]:
    """The return of one episode in each copy, (N,), and the steps of all of them; nothing else is kept."""
    returns, count = np.zeros(len(seeds)), 0
    for step in take_steps(environments, policy, seeds):
        returns += np.where(step.running, step.rewards, 0)
        count += int(step.running.sum())
    return returns, count


def collect(
    environment: Environment, policies: Mapping[str, tuple[Policy, int]], seed: int, at_once: int = AT_ONCE
) -> Iterator[tuple[Episode, str]]:
    """Episodes of each policy, by name: itself, and how many. Episode i of all begins with the seed `seed + i`."""
    first = seed
    for name, (policy, count) in policies.items():
        for start in range(0, count, at_once):
            seeds = range(first + start, first + min(start + at_once, count))
            environments = environment.make(len(seeds))
            try:
                yield from ((episode, name) for episode in play(environments, policy, seeds))
            finally:
                environments.close()
        first += count


class Film(NamedTuple):
    """An episode that was watched: what was drawn before each action, and what the agent made of it."""

    episode: Episode
    frames: list[np.ndarray]  # (H, W, 3) of bytes
    views: list[StepView]  # empty for policies that do not describe their steps


@runtime_checkable
class DescribesSteps(Protocol):
    """A policy that can say how its last action in the first copy came about."""

    def describe_step(self) -> StepView: ...


class Watched:
    """A policy whose steps are described."""

    def __init__(self, policy: Policy):
        self.policy, self.views = policy, list[StepView]()

    def start(self, environments: Any, seeds: Sequence[int]) -> None:
        self.policy.start(environments, seeds)

    def act(self, observations: np.ndarray, rewards: np.ndarray) -> np.ndarray:
        actions = self.policy.act(observations, rewards)
        if isinstance(self.policy, DescribesSteps):
            self.views.append(self.policy.describe_step())
        return actions


def film(environment: Environment, policy: Policy, seed: int, before_step: Callable[[], None] = ignore) -> Film:
    """Play one episode and draw it. What is drawn is what an agent sees, if it sees frames."""
    from gymnasium.error import DependencyNotInstalled

    environments, watched, frames = environment.make(1, drawn=True), Watched(policy), list[np.ndarray]()
    sees_frames = Spaces.of(environments).pixels

    def draw() -> None:
        before_step()
        drawn = environments.render()
        frame = drawn[0] if drawn else None
        if not isinstance(frame, np.ndarray) or frame.ndim != 3:
            raise UserError(f"{environment.id}: draws no pixels; watch another environment")
        frames.append(frame.astype(np.uint8))

    try:
        episode = play(environments, watched, [seed], before_step if sees_frames else draw)[0]
    except DependencyNotInstalled as error:
        raise UserError(f"{environment.id}: cannot be drawn: {' '.join(str(error).split())}") from None
    finally:
        environments.close()
    return Film(episode, list(episode.observations) if sees_frames else frames, watched.views)
