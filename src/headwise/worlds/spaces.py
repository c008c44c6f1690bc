"""What an agent sees and does in an environment: the shapes of observations and actions, and their normalisation. It
takes the place of a text tokeniser."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, NoReturn

import numpy as np

from headwise.config.base import Config
from headwise.errors import UserError
from headwise.text.base import Tokeniser
from headwise.text.normalise import PLAIN, Normaliser

MIN_STD = 1e-2  # of a number that hardly changes in the logs


@dataclass(frozen=True)
class Spaces:
    """The shapes of observations and actions. Discrete actions are numbered from 0; continuous ones have bounds, which
    may be infinite."""

    shape: tuple[int, ...]  # of an observation: (D,) numbers, or (H, W, C) bytes
    actions: int  # number of discrete actions, or of numbers of a continuous one
    discrete: bool
    low: tuple[float, ...] = ()  # of continuous actions
    high: tuple[float, ...] = ()

    @property
    def pixels(self) -> bool:
        return len(self.shape) == 3

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Spaces:
        low, high = (tuple(map(float, data[name])) for name in ("low", "high"))
        shape, actions = tuple(map(int, data["shape"])), int(data["actions"])
        if len(shape) not in (1, 3) or min(*shape, actions) < 1:
            raise ValueError(f"an observation of the shape {shape} with {actions} actions")
        return cls(shape, actions, bool(data["discrete"]), low, high)

    @classmethod
    def of(cls, environments: Any) -> Spaces:
        """The spaces of a vector environment of Gymnasium; others than boxes and one discrete action are refused."""
        from gymnasium.spaces import Box, Discrete

        seen, done = environments.single_observation_space, environments.single_action_space
        name = getattr(environments.spec, "id", "the environment")
        if (
            not isinstance(seen, Box)
            or len(seen.shape) not in (1, 3)
            or (len(seen.shape) == 3) != (seen.dtype == np.uint8)
        ):
            raise UserError(
                f"{name}: its observations are {seen}; only vectors of numbers and frames of bytes are known"
            )
        if isinstance(done, Discrete) and done.start == 0:
            return cls(seen.shape, int(done.n), True)
        if not isinstance(done, Box) or len(done.shape) != 1:
            raise UserError(
                f"{name}: its actions are {done}; only discrete ones from 0 and vectors of numbers are known"
            )
        return cls(seen.shape, done.shape[0], False, tuple(done.low.tolist()), tuple(done.high.tolist()))


@dataclass(frozen=True)
class EpisodeEncoder(Tokeniser):
    """Observations and actions of one environment, with the statistics of the logs that a model was trained on."""

    kind: ClassVar[str] = "episodes"
    environment: str  # its id
    settings: Mapping[str, Any]
    spaces: Spaces
    mean: tuple[float, ...]  # of the numbers of an observation, or of the channels of a frame
    std: tuple[float, ...]
    scale: float  # returns are divided by it
    max_steps: int  # of the longest episode
    returns: tuple[float, ...]  # of episodes that were trained on: their quantiles, 0 to 100 %
    normalise: Normaliser = PLAIN  # of texts: unused
    vocabulary: list[str] = field(default_factory=list, compare=False)  # empty: there are no tokens

    def normalise_observations(self, observations: np.ndarray) -> np.ndarray:
        """(x - mean) / std as float32; frames (..., H, W, C) become (..., C, H, W)."""
        x = observations.astype(np.float32)
        if self.spaces.pixels:
            x = np.moveaxis(x, -1, -3) / 255
            mean, std = (np.array(values, np.float32)[:, None, None] for values in (self.mean, self.std))
        else:
            mean, std = np.array(self.mean, np.float32), np.array(self.std, np.float32)
        return (x - mean) / std

    def to_json(self) -> dict[str, Any]:
        names = ("environment", "settings", "mean", "std", "scale", "max_steps", "returns")
        return {name: getattr(self, name) for name in names} | {"spaces": self.spaces.to_json()}

    @classmethod
    def from_json(cls, data: dict[str, Any], normalise: Normaliser) -> EpisodeEncoder:
        mean, std, returns = (tuple(map(float, data[name])) for name in ("mean", "std", "returns"))
        place = (str(data["environment"]), dict(data["settings"]), Spaces.from_json(data["spaces"]))
        return cls(*place, mean, std, float(data["scale"]), int(data["max_steps"]), returns, normalise)

    @classmethod
    def train(cls, texts: Iterable[str], config: Config, normalise: Normaliser) -> NoReturn:
        _refuse_text()

    def encode(self, text: str) -> NoReturn:
        _refuse_text()

    def decode(self, ids: Iterable[int]) -> NoReturn:
        _refuse_text()

    def tokens(self, ids: Iterable[int]) -> NoReturn:
        _refuse_text()


def _refuse_text() -> NoReturn:
    raise UserError(
        "this run acts in an environment and reads no texts; use `headwise evaluate` or `headwise act watch`"
    )
