"""What all evolution strategies have in common: `ask` for a population, `tell` its losses.

A strategy keeps a distribution over parameter vectors. Its random numbers are a function of seed and generation, so its
state, plain arrays, is all that a resumed run needs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from pydantic import Field

from headwise.config.base import Config, PositiveFloat, PositiveInt, Table, slot

STRATEGIES = Table(
    "evolution strategy",
    default="cma-es",
    place="task.strategy",
    homes={
        "cma-es": "headwise.train.evolution.cma_es:CMAESConfig",
        "openai-es": "headwise.train.evolution.openai_es:OpenAIESConfig",
    },
)


class StrategyConfig(Config):
    """Base of the configs of evolution strategies; `build` takes the first parameter vector."""

    kind: str
    population: int = Field(32, ge=4)  # members of a generation
    sigma: PositiveFloat = 0.1  # step size: standard deviation of the members around the mean, at the beginning
    jobs: PositiveInt = 1  # processes that evaluate members; the results do not depend on it

    def build(self, mean: np.ndarray) -> Strategy:
        raise NotImplementedError


if TYPE_CHECKING:
    AnyStrategy: TypeAlias = StrategyConfig
else:
    AnyStrategy = slot(STRATEGIES)


class Strategy(ABC):
    """An evolution strategy: a distribution over parameter vectors of D numbers. All that changes is in `arrays`."""

    arrays: dict[str, np.ndarray]

    @abstractmethod
    def ask(self, random: np.random.Generator) -> np.ndarray:
        """Draw a population: (P, D)."""

    @abstractmethod
    def tell(self, population: np.ndarray, losses: np.ndarray, rate: float) -> None:
        """Update the distribution by the losses (P,) of a population; lower is better. `rate` is the learning rate."""

    @property
    def mean(self) -> np.ndarray:
        """The middle of the distribution, which is the model: (D,)."""
        return self.arrays["mean"]

    @property
    @abstractmethod
    def sigma(self) -> float:
        """The step size."""

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Continue from a copy of the arrays of a strategy with the same settings, bit by bit."""
        if {name: array.shape for name, array in arrays.items()} != {
            name: array.shape for name, array in self.arrays.items()
        }:
            raise ValueError("this is the state of another strategy")
        self.arrays = {name: np.array(array) for name, array in arrays.items()}
