"""CMA-ES, the covariance matrix adaptation evolution strategy (Hansen 2016, "The CMA Evolution Strategy: A Tutorial").

Members are drawn from a normal distribution; its mean moves to the better half of them, its covariance matrix learns
the directions of good steps (with negative weights of bad ones: active CMA), and its step size sigma follows the length
of the evolution path. With a diagonal covariance, which is linear in memory and time, each number has a scale of its
own that is updated exponentially.

Settings and updates are the defaults of the package `cma` (pycma 4.5); for the same members and losses, ours are the
same numbers. It is written out because a strategy of that package can only be stored by pickle.

Letters: N numbers of a member, P members.
"""

from __future__ import annotations

from functools import cached_property
from math import exp, lgamma, log, sqrt
from typing import Literal

import numpy as np
from pydantic import Field

from headwise.train.evolution.base import Strategy, StrategyConfig

LARGEST_FULL = 1000  # numbers of a member up to which "auto" has a full covariance matrix
MAX_LOG_STEP = 1.0  # of sigma, in a generation
TINY = 1e-9


class CMAESConfig(StrategyConfig):
    """CMA-ES with a full or a diagonal covariance matrix."""

    kind: Literal["cma-es"] = "cma-es"
    population: int = Field(32, ge=6)  # with fewer, pycma mirrors members, which is not built here
    covariance: Literal["auto", "full", "diagonal"] = "auto"  # auto: full up to 1,000 parameters

    def build(self, mean: np.ndarray) -> CMAES:
        full = self.covariance == "full" or (self.covariance == "auto" and len(mean) <= LARGEST_FULL)
        return (FullCMAES if full else DiagonalCMAES)(mean, self.sigma, self.population)


class CMAES(Strategy):
    """CMA-ES, what both forms share: recombination, evolution paths and the step size."""

    # learning rates of path, rank-one and rank-mu updates of the covariance matrix
    path_rate: float
    one_rate: float
    mu_rate: float

    def __init__(self, mean: np.ndarray, sigma: float, population: int):
        self.size, self.population = len(mean), population
        zeros = np.zeros(self.size)
        self.arrays = {
            "mean": np.array(mean, np.float64),
            "sigma": np.array(sigma),
            "path": zeros,  # p_c
            "sigma_path": zeros.copy(),  # p_sigma
            "generation": np.array(0),
        }

    @property
    def sigma(self) -> float:
        return float(self.arrays["sigma"])

    @cached_property
    def raw_weights(self) -> np.ndarray:
        """Recombination weights before negative ones are scaled; positive ones sum to 1, negative ones to -1."""
        weights = np.log((self.population + 1) / 2) - np.log(np.arange(1, self.population + 1))
        positive = weights > 0
        return np.where(positive, weights / weights[positive].sum(), weights / -weights[~positive].sum())

    @cached_property
    def effective(self) -> float:
        """mu_eff, the effective number of parents."""
        return float(1 / (self.raw_weights[self.raw_weights > 0] ** 2).sum())

    def scale_weights(self, positive_definite: bool) -> np.ndarray:
        """Recombination weights whose negative ones neither shrink the covariance matrix nor make it indefinite."""
        weights, negative = self.raw_weights, self.raw_weights < 0
        share = 1 / (weights[negative] ** 2).sum()  # mu_eff of the negative weights, which sum to -1
        limit = min(1 + self.one_rate / self.mu_rate, 1 + 2 * share / (self.effective + 2))
        if positive_definite:
            limit = min(limit, (1 - self.one_rate - self.mu_rate) / self.mu_rate / self.size)
        return np.where(negative, weights * limit, weights)

    def tell(self, population: np.ndarray, losses: np.ndarray, rate: float = 0.0) -> None:
        arrays, size, effective = self.arrays, self.size, self.effective
        members, before = population[np.argsort(losses, kind="stable")], arrays["mean"]
        arrays["generation"] = arrays["generation"] + 1
        parents = self.raw_weights > 0
        arrays["mean"] = self.raw_weights[parents] @ members[parents]
        shift = (arrays["mean"] - before) * sqrt(effective) / self.sigma
        decay = min(0.5, (effective + 2) / (size + effective + 3))  # c_sigma
        sigma_path = (1 - decay) * arrays["sigma_path"] + sqrt(decay * (2 - decay)) * self.whiten(shift)
        arrays["sigma_path"] = sigma_path
        # While sigma grows fast, the other path is stalled (h_sigma).
        spread = (sigma_path**2).sum() / (1 - (1 - decay) ** (2 * int(arrays["generation"])))
        moving = float(spread / size - 1 < 1 + 4 / (size + 1))
        own = self.path_rate
        arrays["path"] = (1 - own) * arrays["path"] + moving * sqrt(own * (2 - own)) * self.scale(shift)
        one_rate = self.one_rate * (1 - (1 - moving) * own * (2 - own))
        self.update_covariance((members - before) / self.sigma, one_rate)
        arrays["sigma"] = np.array(self.sigma * exp(self.compute_log_step(decay)))

    def compute_log_step(self, decay: float) -> float:
        """The change of log sigma: positive if the path is longer than that of random steps."""
        size, path = self.size, self.arrays["sigma_path"]
        inner = max(1.0, 3 * (1 - 0.5 ** (size / 9)))
        damping = 1 + 2 * max(0.0, inner * sqrt((self.effective - 1) / (size + 1)) - 1) + decay
        expected = sqrt(2) * exp(lgamma((size + 1) / 2) - lgamma(size / 2))  # of the length of N normal numbers
        step = (float(np.sqrt((path**2).sum())) / expected - 1) * decay / damping
        return min(MAX_LOG_STEP, max(-MAX_LOG_STEP, step))

    def whiten(self, x: np.ndarray) -> np.ndarray:
        """C^-1/2 x."""
        raise NotImplementedError

    def scale(self, x: np.ndarray) -> np.ndarray:
        """A step as the path keeps it."""
        return x

    def update_covariance(self, steps: np.ndarray, one_rate: float) -> None:
        """Learn from the steps (P, N) of the members, the best first."""
        raise NotImplementedError


class FullCMAES(CMAES):
    """CMA-ES with a full covariance matrix C = B D^2 B^T. Its decomposition, of cubic time, is only renewed when C has
    changed enough."""

    def __init__(self, mean: np.ndarray, sigma: float, population: int):
        super().__init__(mean, sigma, population)
        size, effective = self.size, self.effective
        self.path_rate = (4 + effective / size) / (size + 4 + 2 * effective / size)
        self.one_rate = min(1, population / 6) * 2 / ((size + 1.3) ** 2 + effective)
        gain = 2 * (0.25 + effective - 2 + 1 / effective) / ((size + 2) ** 2 + effective)
        self.mu_rate = min(1 - self.one_rate, gain)
        self.weights = self.scale_weights(positive_definite=True)
        self.patience = 1 / (self.one_rate + self.mu_rate + 1e-23) / size / 10  # generations between decompositions
        self.arrays |= {
            "covariance": np.eye(size),
            "basis": np.eye(size),
            "lengths": np.ones(size),
            "decomposed": np.array(0),
        }

    def decompose(self) -> None:
        """Renew B and D."""
        arrays = self.arrays
        arrays["covariance"] = (arrays["covariance"] + arrays["covariance"].T) / 2
        values, arrays["basis"] = np.linalg.eigh(arrays["covariance"])
        arrays["lengths"] = np.sqrt(np.maximum(values, np.finfo(np.float64).tiny))
        arrays["decomposed"] = arrays["generation"].copy()

    def ask(self, random: np.random.Generator) -> np.ndarray:
        arrays = self.arrays
        passed = int(arrays["generation"] - arrays["decomposed"])
        if passed >= max(1.0, self.patience):
            self.decompose()
        steps = random.standard_normal((self.population, self.size)) * arrays["lengths"]
        return arrays["mean"] + self.sigma * (steps @ arrays["basis"].T)

    def whiten(self, x: np.ndarray) -> np.ndarray:
        basis, lengths = self.arrays["basis"], self.arrays["lengths"]
        return basis @ ((basis.T @ x) / lengths)

    def update_covariance(self, steps: np.ndarray, one_rate: float) -> None:
        arrays, weights = self.arrays, self.mu_rate * self.weights
        lengths = np.sqrt((((steps @ arrays["basis"]) / arrays["lengths"]) ** 2).sum(1))
        # A bad step counts by its direction alone, so that C stays positive definite.
        scaled = np.where(weights < 0, weights * self.size / (lengths + TINY) ** 2, weights)
        covariance = arrays["covariance"] * (1 - one_rate - weights.sum())
        covariance += self.one_rate * np.outer(arrays["path"], arrays["path"])
        covariance += (scaled * steps.T) @ steps
        arrays["covariance"] = covariance


class DiagonalCMAES(CMAES):
    """CMA-ES with a scale for each number: separable CMA-ES (Ros & Hansen 2008) with exponential updates."""

    def __init__(self, mean: np.ndarray, sigma: float, population: int):
        super().__init__(mean, sigma, population)
        size, effective = self.size, self.effective
        self.path_rate = (1 + 1 / size + effective / size) / (sqrt(size) + 1 / size + 2 * effective / size)
        self.one_rate = 1 / (size + 2 * sqrt(size) + effective / size)
        gain = (0.25 + effective + 1 / effective - 2) / (size + 4 * sqrt(size) + effective / 2)
        self.mu_rate = min(1 - self.one_rate, gain)
        self.weights = self.scale_weights(positive_definite=False)
        self.arrays["scales"] = np.ones(size)

    def ask(self, random: np.random.Generator) -> np.ndarray:
        steps = random.standard_normal((self.population, self.size)) * self.arrays["scales"]
        return self.arrays["mean"] + self.sigma * steps

    def whiten(self, x: np.ndarray) -> np.ndarray:
        return x / self.arrays["scales"]

    scale = whiten

    def update_covariance(self, steps: np.ndarray, one_rate: float) -> None:
        scales = self.arrays["scales"]
        squares = np.concatenate((self.arrays["path"][None], steps / scales)) ** 2  # (1 + P, N)
        weights = log(2) * np.concatenate(([one_rate], self.mu_rate * self.weights))
        factors = np.exp((weights @ squares - weights.sum()) / 2)
        # no scale grows beyond what was seen
        self.arrays["scales"] = scales * np.minimum(factors, np.abs(squares - 1).max(0) / 2 + 1)
