"""CMA-ES: the same updates as the package cma, for the same members and losses."""

from __future__ import annotations

import cma
import numpy as np
import pytest
from cma.options_parameters import CMAOptions

from headwise.train.evolution.cma_es import CMAES, CMAESConfig, DiagonalCMAES, FullCMAES

SCALES = np.array([1.0, 3.0, 10.0, 0.3, 1.0, 30.0, 2.0])


def measure(members: np.ndarray) -> np.ndarray:
    """An ellipsoid that is turned and has its lowest point at 1."""
    turned = (members - 1) @ np.linalg.qr(np.random.default_rng(5).standard_normal((7, 7)))[0]
    return ((turned * SCALES) ** 2).sum(-1)


def start_oracle(diagonal: bool, population: int) -> cma.CMAEvolutionStrategy:
    options = CMAOptions({"popsize": population, "seed": 3, "verbose": -9, "CMA_diagonal": diagonal})
    return cma.CMAEvolutionStrategy(np.zeros(7), 0.5, options)


def compare(ours: CMAES, oracle: cma.CMAEvolutionStrategy, diagonal: bool) -> None:
    for mine, theirs in (
        (ours.mean, oracle.mean),
        (ours.sigma, oracle.sigma),
        (ours.arrays["path"], oracle.pc),
        (ours.arrays["sigma_path"], oracle.adapt_sigma.ps),
        (ours.arrays["scales"], oracle.sigma_vec.scaling) if diagonal else (ours.arrays["covariance"], oracle.sm.C),
    ):
        np.testing.assert_allclose(mine, theirs, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("population", [6, 9, 32, 200])
@pytest.mark.parametrize("diagonal", [False, True])
def test_updates_are_those_of_cma(diagonal, population):
    oracle = start_oracle(diagonal, population)
    ours = (DiagonalCMAES if diagonal else FullCMAES)(np.zeros(7), 0.5, population)
    for _ in range(25):
        members = oracle.ask()  # renews the decomposition of its covariance matrix
        if not diagonal:
            if int(ours.arrays["generation"]):
                ours.ask(np.random.default_rng(0))  # renews ours
            else:  # cma begins with a matrix that is not quite the identity
                ours.arrays |= {"covariance": oracle.sm.C.copy(), "basis": oracle.sm.B, "lengths": oracle.sm.D}
        losses = measure(np.array(members))
        oracle.tell(members, list(losses))
        ours.tell(np.array(members), losses)
        compare(ours, oracle, diagonal)
    assert min(losses) < measure(np.zeros(7)) / 2


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_draws_have_mean_and_covariance_of_the_distribution(covariance):
    strategy = CMAESConfig(population=20000, covariance=covariance).build(np.arange(3.0))
    if covariance == "full":
        strategy.arrays["covariance"] = np.array([[2.0, 0.5, 0.0], [0.5, 1.0, 0.3], [0.0, 0.3, 0.5]])
        strategy.decompose()
        wanted = strategy.arrays["covariance"]
    else:
        strategy.arrays["scales"] = np.array([1.0, 2.0, 0.5])
        wanted = np.diag(strategy.arrays["scales"] ** 2)
    members = strategy.ask(np.random.default_rng(0))
    np.testing.assert_allclose(members.mean(0), np.arange(3.0), atol=0.01)
    np.testing.assert_allclose(np.cov(members.T) / 0.1**2, wanted, atol=0.1)


def test_auto_is_full_for_few_parameters_and_diagonal_for_many():
    assert isinstance(CMAESConfig().build(np.zeros(1000)), FullCMAES)
    assert isinstance(CMAESConfig().build(np.zeros(1001)), DiagonalCMAES)
    assert isinstance(CMAESConfig(covariance="diagonal").build(np.zeros(2)), DiagonalCMAES)


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_finds_the_lowest_point(covariance):
    strategy = CMAESConfig(population=16, sigma=0.5, covariance=covariance).build(np.zeros(7))
    for generation in range(300):
        members = strategy.ask(np.random.default_rng([1, generation]))
        strategy.tell(members, ((members - 1) ** 2 * SCALES).sum(1))
    np.testing.assert_allclose(strategy.mean, 1, atol=1e-6)


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_continues_from_its_arrays_bit_by_bit(covariance):
    def run(strategy: CMAES, first: int, last: int) -> CMAES:
        for generation in range(first, last):
            members = strategy.ask(np.random.default_rng([1, generation]))
            strategy.tell(members, measure(members))
        return strategy

    config = CMAESConfig(population=8, covariance=covariance)
    whole = run(config.build(np.zeros(7)), 0, 23)
    half, resumed = run(config.build(np.zeros(7)), 0, 11), config.build(np.zeros(7))
    resumed.restore(half.arrays)
    run(resumed, 11, 23)
    assert all((resumed.arrays[name] == array).all() for name, array in whole.arrays.items())
    with pytest.raises(ValueError, match="another strategy"):
        config.build(np.zeros(8)).restore(half.arrays)
