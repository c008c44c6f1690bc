"""HEFT on the example of its paper (Topcuoglu et al. 2002, figures 2 and 3, tables 1 and 2)."""

from __future__ import annotations

import numpy as np
import pytest

from headwise.placement.cluster import Cluster
from headwise.placement.heft import find_slot, place_by_heft, rank_upward, schedule_heft
from headwise.placement.random_graphs import generate_graph
from headwise.placement.simulator import Simulator

COSTS = np.array(
    [[14, 16, 9], [13, 19, 18], [11, 13, 19], [13, 8, 17], [12, 13, 10], [13, 16, 9], [7, 15, 11], [5, 11, 14],
     [18, 12, 20], [21, 7, 16]], float
)  # fmt: skip
COMMUNICATION = {
    (1, 2): 18, (1, 3): 12, (1, 4): 9, (1, 5): 11, (1, 6): 14, (2, 8): 19, (2, 9): 16, (3, 7): 23, (4, 8): 27,
    (4, 9): 23, (5, 9): 13, (6, 8): 15, (7, 10): 17, (8, 10): 11, (9, 10): 13,
}  # fmt: skip
EDGES, BETWEEN = np.array(list(COMMUNICATION)) - 1, np.array(list(COMMUNICATION.values()), float)
RANKS = [108.000, 77.000, 80.000, 80.000, 69.000, 63.333, 42.667, 35.667, 44.333, 14.667]


def test_the_published_example():
    assert rank_upward(COSTS, EDGES, BETWEEN) == pytest.approx(RANKS, abs=5e-4)
    schedule = schedule_heft(COSTS, EDGES, BETWEEN)
    assert schedule.makespan == 80
    assert schedule.devices[0] == 2 and schedule.start[0] == 0 and schedule.finish[0] == 9
    assert schedule.devices[9] == 1 and schedule.start[9] == 73


def test_a_schedule_is_possible():
    schedule = schedule_heft(COSTS, EDGES, BETWEEN)
    for (one, two), cost in zip(EDGES, BETWEEN, strict=True):
        sent = cost * (schedule.devices[one] != schedule.devices[two])
        assert schedule.start[two] >= schedule.finish[one] + sent
    for device in range(3):
        here = np.nonzero(schedule.devices == device)[0]
        order = here[np.argsort(schedule.start[here])]
        assert (schedule.finish[order[:-1]] <= schedule.start[order[1:]]).all()


def test_tasks_go_into_gaps():
    assert find_slot([(0, 2), (5, 9)], ready=1, cost=3) == 2
    assert find_slot([(0, 2), (5, 9)], ready=1, cost=4) == 9
    assert find_slot([], ready=1, cost=4) == 1


def test_a_full_device_is_passed_over():
    simulator = Simulator(generate_graph(20, 0), Cluster(devices=2))
    needed = simulator.simulate(place_by_heft(simulator)[None]).measure_memory()[0]
    small = Simulator(generate_graph(20, 0), Cluster(devices=4, memory=0.9 * needed.max()))
    assert np.isfinite(small.measure(place_by_heft(small)[None])[0])
