"""What an agent sees and does in an environment: the shapes of observations and actions, and their normalisation. It
takes the place of a text tokeniser."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from headwise.errors import UserError
from headwise.text.base import TextlessEncoder
from headwise.text.normalise import PLAIN, Normaliser
from headwise.worlds.episodes import Episodes

if TYPE_CHECKING:
    from torch import Tensor

MIN_STD = 1e-3  # of a number that hardly changes in the logs
MAX_DEVIATION = 10.0  # standard deviations, beyond which numbers of a state are cut
SAMPLE = 5000  # frames of which mean and standard deviation are computed
QUANTILES = 101  # of the returns of a log


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
class EpisodeEncoder(TextlessEncoder):
    """Observations and actions of one environment, with the statistics of the logs that a model was trained on."""

    kind: ClassVar[str] = "episodes"
    refusal: ClassVar[str] = (
        "this run acts in an environment and reads no texts; use `headwise evaluate` or `headwise act watch`"
    )
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

    @classmethod
    def from_episodes(
        cls, environment: str, settings: Mapping[str, Any], spaces: Spaces, episodes: Episodes
    ) -> EpisodeEncoder:
        """Compute the statistics of episodes."""
        rows = np.concatenate([np.arange(*limits) for limits in zip(episodes.starts, episodes.ends, strict=True)])
        if spaces.pixels:
            frames = episodes.observations[rows[:: -(-len(rows) // SAMPLE)]] / np.float32(255)
            mean, std = frames.mean((0, 1, 2), dtype=np.float64), frames.std((0, 1, 2), dtype=np.float64)
        else:
            mean, std = (f(episodes.observations[rows], axis=0, dtype=np.float64) for f in (np.mean, np.std))
        returns = episodes.returns
        quantiles = np.quantile(returns, np.linspace(0, 1, QUANTILES))
        scale, longest = float(np.abs(returns).max()) or 1.0, int(episodes.lengths.max())
        means, stds = (tuple(float(f"{value:.6g}") for value in values) for values in (mean, std.clip(min=MIN_STD)))
        return cls(environment, settings, spaces, means, stds, scale, longest, tuple(quantiles.tolist()))

    @classmethod
    def without_logs(cls, environment: str, settings: Mapping[str, Any], spaces: Spaces) -> EpisodeEncoder:
        """That of an environment of which nothing is known but its spaces: frames from 0 to 1, states as they are."""
        numbers = spaces.shape[-1]
        return cls(environment, settings, spaces, (0.0,) * numbers, (1.0,) * numbers, 1.0, 1, (0.0, 0.0))

    @classmethod
    def without_environment(cls, states: int, actions: int, max_steps: int) -> EpisodeEncoder:
        """That of a folder of `transformers`, which does not say what the model was trained in: states as they are,
        actions from -1 to 1, and returns in thousands, as the paper has them."""
        spaces = Spaces((states,), actions, False, (-1.0,) * actions, (1.0,) * actions)
        return cls("", {}, spaces, (0.0,) * states, (1.0,) * states, 1000.0, max_steps, (0.0, 0.0))

    def normalise_observations(self, observations: Tensor) -> Tensor:
        """(x - mean) / std, within +-10; frames (..., H, W, C) become (..., C, H, W)."""
        if not self.spaces.pixels:
            x = observations.float()
            return ((x - x.new_tensor(self.mean)) / x.new_tensor(self.std)).clamp(-MAX_DEVIATION, MAX_DEVIATION)
        x = observations.movedim(-1, -3).float() / 255
        mean, std = (x.new_tensor(values)[:, None, None] for values in (self.mean, self.std))
        return (x - mean) / std

    @property
    def _bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Middle and half width of the actions' bounds; 0 and 1 without bounds."""
        low, high = np.array(self.spaces.low, np.float32), np.array(self.spaces.high, np.float32)
        bounded = np.isfinite(low) & np.isfinite(high)
        low, high = np.where(bounded, low, -1), np.where(bounded, high, 1)
        return (low + high) / 2, (high - low) / 2

    def scale_actions(self, actions: np.ndarray) -> np.ndarray:
        """Continuous actions, from -1 to 1 within their bounds; discrete ones as they are."""
        if self.spaces.discrete:
            return actions
        middle, half = self._bounds
        return ((actions - middle) / half).astype(np.float32)

    def unscale_actions(self, actions: np.ndarray) -> np.ndarray:
        """The way back from `scale_actions`, clipped to the bounds."""
        if self.spaces.discrete:
            return actions
        middle, half = self._bounds
        return np.clip(middle + half * actions, self.spaces.low, self.spaces.high).astype(np.float32)

    def to_json(self) -> dict[str, Any]:
        names = ("environment", "settings", "mean", "std", "scale", "max_steps", "returns")
        return {name: getattr(self, name) for name in names} | {"spaces": self.spaces.to_json()}

    @classmethod
    def from_json(cls, data: dict[str, Any], normalise: Normaliser) -> EpisodeEncoder:
        mean, std, returns = (tuple(map(float, data[name])) for name in ("mean", "std", "returns"))
        place = (str(data["environment"]), dict(data["settings"]), Spaces.from_json(data["spaces"]))
        return cls(*place, mean, std, float(data["scale"]), int(data["max_steps"]), returns, normalise)
