"""Environments of Gymnasium: our own worlds as environments, and any environment by its id with settings."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from headwise.errors import UserError, nearest
from headwise.utils.extras import needed_for
from headwise.worlds.base import SIDE, World
from headwise.worlds.tables import HOMES, get_id, make_world

with needed_for("environments"):
    import gymnasium
    from gymnasium import spaces
    from gymnasium.vector import AutoresetMode, VectorEnv
    from gymnasium.vector.utils import batch_space

if TYPE_CHECKING:
    from gymnasium.vector import VectorEnv as AnyVectorEnv

FRAMES_PER_SECOND = 20
STATE_LIMIT = 10.0  # no number of a state is larger


def make_observation_space(world: World[Any]) -> spaces.Box:
    if world.config.observe == "pixels":
        return spaces.Box(0, 255, (SIDE, SIDE, 3), np.uint8)
    return spaces.Box(-STATE_LIMIT, STATE_LIMIT, (world.state_size,), np.float32)


def make_action_space(world: World[Any]) -> spaces.Space[Any]:
    if world.actions:
        return spaces.Discrete(world.actions)
    return spaces.Box(np.array(world.action_low, np.float32), np.array(world.action_high, np.float32))


class WorldEnv(gymnasium.Env[Any, Any]):
    """One copy of a world as an environment."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": FRAMES_PER_SECOND}  # type: ignore[misc]

    def __init__(self, name: str, render_mode: str | None = None, **settings: Any):
        self.world, self.render_mode = make_world(name, **settings), render_mode
        self.observation_space, self.action_space = make_observation_space(self.world), make_action_space(self.world)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.world.reset(np.arange(1), draw_seeds(self.np_random, 1))
        return self.world.observe()[0], {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        rewards, terminated, truncated = self.world.step(np.asarray(action)[None])
        return self.world.observe()[0], float(rewards[0]), bool(terminated[0]), bool(truncated[0]), {}

    def render(self) -> Any:
        return self.world.render()[0]

    def save_state(self) -> dict[str, Any]:
        """All that the next steps and episodes depend on."""
        return {"world": self.world.save_state(), "random": self.np_random.bit_generator.state}

    def restore_state(self, state: Mapping[str, Any]) -> None:
        """Continue bit by bit from what `save_state` returned."""
        self.world.restore_state(state["world"])
        self.np_random.bit_generator.state = state["random"]


class WorldVectorEnv(VectorEnv[Any, Any, Any]):
    """N copies of a world as a vector environment; an episode that has ended is reset in the next step. Copy i with the
    seed s is equal to a `WorldEnv` with that seed."""

    metadata: ClassVar[dict[str, Any]] = {  # type: ignore[misc]
        "render_modes": ["rgb_array"],
        "render_fps": FRAMES_PER_SECOND,
        "autoreset_mode": AutoresetMode.NEXT_STEP,
    }

    def __init__(self, name: str, num_envs: int = 1, render_mode: str | None = None, **settings: Any):
        self.world, self.num_envs, self.render_mode = make_world(name, num_envs, **settings), num_envs, render_mode
        self.single_observation_space = make_observation_space(self.world)
        self.single_action_space = make_action_space(self.world)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.generators = [np.random.default_rng() for _ in range(num_envs)]
        self.ended = np.zeros(num_envs, bool)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        seeds = [seed + i for i in range(self.num_envs)] if isinstance(seed, int) else seed or [None] * self.num_envs
        for number, own in enumerate(seeds):
            if own is not None:
                self.generators[number] = gymnasium.utils.seeding.np_random(own)[0]
        self._begin(np.arange(self.num_envs))
        return self.world.observe(), {}

    def _begin(self, rows: np.ndarray) -> None:
        self.world.reset(rows, np.concatenate([draw_seeds(self.generators[row], 1) for row in rows]))
        self.ended[rows] = False

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        fresh = self.ended.copy()
        rewards, terminated, truncated = (array.copy() for array in self.world.step(np.asarray(actions)))
        if fresh.any():  # their action is ignored: this step is the reset
            self._begin(np.nonzero(fresh)[0])
            rewards[fresh], terminated[fresh], truncated[fresh] = 0, False, False
        self.ended = terminated | truncated
        return self.world.observe(), rewards, terminated, truncated, {}

    def render(self) -> Any:
        return tuple(self.world.render())

    def save_state(self) -> dict[str, Any]:
        """All that the next steps and episodes depend on."""
        states = [generator.bit_generator.state for generator in self.generators]
        return {"world": self.world.save_state(), "random": states, "ended": self.ended.copy()}

    def restore_state(self, state: Mapping[str, Any]) -> None:
        """Continue bit by bit from what `save_state` returned."""
        self.world.restore_state(state["world"])
        for generator, own in zip(self.generators, state["random"], strict=True):
            generator.bit_generator.state = own
        self.ended = state["ended"].copy()


def draw_seeds(generator: np.random.Generator, count: int) -> np.ndarray:
    return generator.integers(2**63, size=count, dtype=np.int64).astype(np.uint64)


def register_worlds() -> None:
    """Register our worlds with Gymnasium: `gymnasium.make("headwise/Grid-v0")`, `gymnasium.make_vec(...)`."""
    for name in HOMES:
        if get_id(name) not in gymnasium.registry:
            gymnasium.register(
                get_id(name),
                "headwise.worlds.environments:WorldEnv",
                vector_entry_point="headwise.worlds.environments:WorldVectorEnv",
                kwargs={"name": name},
            )


@dataclass(frozen=True)
class Environment:
    """An environment by its id, with the keyword arguments of `gymnasium.make`."""

    id: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, settings: Mapping[str, Any] | None = None) -> Environment:
        """The environment of an id, or of the name of one of our worlds."""
        register_worlds()
        id_ = get_id(name) if name in HOMES else name
        if id_ not in gymnasium.registry:
            near = nearest(name, [*HOMES, *gymnasium.registry])
            remedy = near if near.startswith("did") else f"known: {', '.join(HOMES)}, and the ids of Gymnasium"
            raise UserError(f"there is no environment '{name}'; {remedy}")
        return cls(id_, dict(settings or {}))

    def __str__(self) -> str:
        return self.id + "".join(f" {key}={json.dumps(value)}" for key, value in self.settings.items())

    def make(self, count: int, drawn: bool = False) -> AnyVectorEnv[Any, Any, Any]:
        """`count` copies that are stepped together; `drawn` ones can be rendered."""
        mode, options = "vector_entry_point" if self.is_own else "sync", dict(self.settings)
        if drawn:
            options["render_mode"] = "rgb_array"
        return self._make(lambda: gymnasium.make_vec(self.id, count, mode, **options))

    @property
    def is_own(self) -> bool:
        return self.id in map(get_id, HOMES)

    def _make(self, make: Any) -> Any:
        if ":" in self.id:  # Gymnasium would import this module, and the id may come from a log or a run
            raise UserError(f"{self.id}: names a module to import; register the environment in a file of your own")
        register_worlds()
        try:
            return make()
        except (gymnasium.error.DependencyNotInstalled, ModuleNotFoundError) as error:
            raise UserError(f"{self.id}: {' '.join(str(error).split())}") from None
        except (TypeError, gymnasium.error.Error, ValueError) as error:
            raise UserError(f"{self}: cannot be made: {' '.join(str(error).split())}") from None
