"""The evolution strategy of OpenAI (Salimans et al. 2017, "Evolution Strategies as a Scalable Alternative to
Reinforcement Learning"): the gradient of the expected loss under noise, estimated from pairs of opposite members.

    g = 1 / (P sigma) sum_i u_i eps_i,  members mean +- sigma eps_i,  u_i centred ranks of the losses, -0.5 to 0.5

The mean then takes a step of Adam with the learning rate of `train.schedule`. Sigma stays.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field, field_validator

from headwise.config.base import Fraction, NonNegativeFloat
from headwise.train.evolution.base import Strategy, StrategyConfig

EPS = 1e-8


class OpenAIESConfig(StrategyConfig):
    """Evolution strategy of OpenAI: Adam on gradients that are estimated from ranks."""

    kind: Literal["openai-es"] = "openai-es"
    betas: tuple[Fraction, Fraction] = (0.9, 0.999)
    weight_decay: NonNegativeFloat = 0.0  # as L2 regularisation: added to the gradient
    population: int = Field(32, ge=4)

    @field_validator("population")
    @classmethod
    def _check_even(cls, population: int) -> int:
        if population % 2:
            raise ValueError("members come in pairs; choose an even number")
        return population

    def build(self, mean: np.ndarray) -> OpenAIES:
        return OpenAIES(mean, self)


def rank_losses(losses: np.ndarray) -> np.ndarray:
    """Centred ranks of losses: -0.5 for the lowest to 0.5 for the highest.

    >>> rank_losses(np.array([3.0, -7.0, 12.0])).tolist()
    [0.0, -0.5, 0.5]
    """
    ranks = np.empty(len(losses))
    ranks[np.argsort(losses, kind="stable")] = np.arange(len(losses))
    return ranks / (len(losses) - 1) - 0.5


class OpenAIES(Strategy):
    """OpenAI-ES: the mean, and the two moments of Adam."""

    def __init__(self, mean: np.ndarray, config: OpenAIESConfig):
        self.config = config
        zeros = np.zeros(len(mean))
        self.arrays = {
            "mean": np.array(mean, np.float64),
            "first": zeros,
            "second": zeros.copy(),
            "generation": np.array(0),
        }

    @property
    def sigma(self) -> float:
        return self.config.sigma

    def ask(self, random: np.random.Generator) -> np.ndarray:
        noise = random.standard_normal((self.config.population // 2, len(self.mean)))
        return self.mean + self.sigma * np.concatenate((noise, -noise))

    def tell(self, population: np.ndarray, losses: np.ndarray, rate: float) -> None:
        ranks = rank_losses(losses)
        gradient = ranks @ (population - self.mean) / (len(losses) * self.sigma**2)
        self.take_step(gradient + self.config.weight_decay * self.mean, rate)

    def take_step(self, gradient: np.ndarray, rate: float) -> None:
        """Adam (Kingma & Ba 2015)."""
        arrays, betas = self.arrays, self.config.betas
        arrays["generation"] = arrays["generation"] + 1
        arrays["first"] = betas[0] * arrays["first"] + (1 - betas[0]) * gradient
        arrays["second"] = betas[1] * arrays["second"] + (1 - betas[1]) * gradient**2
        first, second = (
            arrays[name] / (1 - beta ** int(arrays["generation"]))
            for name, beta in zip(("first", "second"), betas, strict=True)
        )
        arrays["mean"] = arrays["mean"] - rate * first / (np.sqrt(second) + EPS)
