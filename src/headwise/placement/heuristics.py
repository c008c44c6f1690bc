"""Placements without learning: by hand, by simple rules, by search with the simulator.

Letters: N nodes, D devices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from headwise.errors import UserError, nearest
from headwise.placement.heft import place_by_heft
from headwise.placement.metis import place_by_metis
from headwise.placement.simulator import AT_ONCE, Simulator

BRUTE_FORCE = 2**21  # placements that are tried at most
NEIGHBOURS = 32  # of annealing, in one round
HOT, COLD = 0.05, 0.0005  # temperatures of annealing, as shares of the time on one device


class Budget(NamedTuple):
    """What a search may spend: calls of the simulator."""

    calls: int
    seed: int


Method = Callable[[Simulator, Budget], np.ndarray]


def place_on_one(simulator: Simulator, budget: Budget) -> np.ndarray:
    """All on the first device."""
    return np.zeros(len(simulator.graph), int)


def place_in_turn(simulator: Simulator, budget: Budget) -> np.ndarray:
    """Nodes in topological order on the devices in turn (round robin)."""
    return np.arange(len(simulator.graph)) % simulator.devices


def place_by_hand(simulator: Simulator, budget: Budget) -> np.ndarray:
    """As people place layers: stretches of the program with about equal time, one after the other. Of the best
    stretches by time and by memory, those that fit, else those that need least memory."""
    step, nodes = simulator.step, len(simulator.graph)
    seconds = np.bincount(step.nodes, weights=step.seconds, minlength=nodes)
    held = simulator.weights + simulator.graph.get_sizes("output_bytes")
    options = [cut_stretches(weights, simulator.devices) for weights in (seconds, held + 1e-9 * held.max(initial=1.0))]
    runtimes = simulator.measure(np.stack(options))
    return options[int(runtimes.argmin())] if np.isfinite(runtimes).any() else options[1]


def cut_stretches(weights: np.ndarray, parts: int) -> np.ndarray:
    """Numbers of consecutive stretches such that the heaviest one is as light as possible, (N,): by bisection.

    >>> cut_stretches(np.array([1.0, 1, 1, 3, 1, 1, 1]), 3)
    array([0, 0, 0, 1, 2, 2, 2])
    """
    low, high = float(weights.max(initial=0.0)), float(weights.sum())
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (low, middle) if fill_stretches(weights, middle)[-1] < parts else (middle, high)
    return fill_stretches(weights, high)


def fill_stretches(weights: np.ndarray, limit: float) -> np.ndarray:
    """A new stretch begins where the limit would be exceeded."""
    numbers, number, total = np.zeros(len(weights), int), 0, 0.0
    for place, weight in enumerate(weights.tolist()):
        if total and total + weight > limit * (1 + 1e-12):
            number, total = number + 1, 0.0
        total += weight
        numbers[place] = number
    return numbers


def search_randomly(simulator: Simulator, budget: Budget) -> np.ndarray:
    """The best of so many uniformly random placements."""
    random, best = np.random.default_rng(budget.seed), Best(simulator)
    for first in range(0, budget.calls, AT_ONCE):
        rows = min(AT_ONCE, budget.calls - first)
        best.try_all(random.integers(simulator.devices, size=(rows, len(simulator.graph))))
    return best.placement


def anneal(simulator: Simulator, budget: Budget) -> np.ndarray:
    """Simulated annealing (Kirkpatrick et al. 1983) from the placement by hand: rounds of neighbours that differ in one
    to three nodes, or in the device of a stretch."""
    random, best = np.random.default_rng(budget.seed), Best(simulator)
    current = place_by_hand(simulator, budget)
    value = best.try_all(current[None])[0]
    rounds = max((budget.calls - 1) // NEIGHBOURS, 1)
    for number in range(rounds):
        rows = np.repeat(current[None], NEIGHBOURS, 0)
        for row in rows:
            change(row, simulator.devices, random)
        values = best.try_all(rows)
        chosen = int(values.argmin())
        heat = simulator.serial * HOT * (COLD / HOT) ** (number / rounds)
        if values[chosen] <= value or random.random() < np.exp((value - values[chosen]) / heat):
            current, value = rows[chosen], values[chosen]
    return best.placement


def change(row: np.ndarray, devices: int, random: np.random.Generator) -> None:
    """Move some nodes of a placement, in place."""
    nodes, device = len(row), int(random.integers(devices))
    if random.random() < 0.5:
        row[random.integers(nodes, size=int(random.integers(1, 4)))] = device
    else:
        start = int(random.integers(nodes))
        row[start : start + int(random.integers(1, max(nodes // 4, 2)))] = device


def try_everything(simulator: Simulator, budget: Budget) -> np.ndarray:
    """The best of all placements (brute force). Devices are equal, so the first node stays on the first one."""
    nodes, devices = len(simulator.graph), simulator.devices
    count = devices ** (nodes - 1)
    if count > BRUTE_FORCE:
        raise UserError(
            f"{simulator.graph.name}: has {count:.2g} placements of {nodes} nodes on {devices} devices, too many to "
            f"try all, at most {BRUTE_FORCE:,}; choose another method"
        )
    powers, best = devices ** np.arange(nodes - 1), Best(simulator)
    for first in range(0, count, AT_ONCE):
        numbers = np.arange(first, min(first + AT_ONCE, count))
        best.try_all(np.concatenate([0 * numbers[:, None], numbers[:, None] // powers % devices], axis=1))
    return best.placement


class Best:
    """The best placement so far; if none fits, the last one."""

    def __init__(self, simulator: Simulator):
        self.simulator, self.runtime = simulator, np.inf
        self.placement = np.zeros(len(simulator.graph), int)

    def try_all(self, placements: np.ndarray) -> np.ndarray:
        runtimes = self.simulator.measure(placements)
        best = int(runtimes.argmin())
        if runtimes[best] <= self.runtime:
            self.runtime, self.placement = runtimes[best], placements[best].copy()
        return runtimes


METHODS: Mapping[str, Method] = {
    "one-device": place_on_one,
    "round-robin": place_in_turn,
    "by-hand": place_by_hand,
    "metis": lambda simulator, budget: place_by_metis(simulator, budget.seed),
    "heft": lambda simulator, budget: place_by_heft(simulator),
    "random-search": search_randomly,
    "annealing": anneal,
    "brute-force": try_everything,
}
SEARCHES = ("random-search", "annealing")  # methods that spend all calls


def find_method(name: str) -> Method:
    if name not in METHODS:
        raise UserError(f"--method {name}: there is no such method; {nearest(name, METHODS)}")
    return METHODS[name]
