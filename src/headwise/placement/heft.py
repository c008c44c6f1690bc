"""HEFT (Topcuoglu, Hariri, Wu 2002, "Performance-effective and low-complexity task scheduling for heterogeneous
computing"): heterogeneous earliest finish time.

Tasks are taken by their upward rank, the length of the longest path to the end with mean costs, and each goes to the
device on which it finishes first, into a gap between earlier tasks if one is long enough. Equations 7 (rank), 5 and 6
(earliest start and finish time).

Letters: N tasks, E edges, D devices.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from headwise.placement.simulator import Simulator


class HeftSchedule(NamedTuple):
    """Devices and times of all tasks, (N,)."""

    devices: np.ndarray
    start: np.ndarray
    finish: np.ndarray

    @property
    def makespan(self) -> float:
        return float(self.finish.max())


def rank_upward(costs: np.ndarray, edges: np.ndarray, communication: np.ndarray) -> np.ndarray:
    """rank(i) = mean cost of i + max over its successors j of (communication(i, j) + rank(j)), (N,)."""
    mean, ranks = costs.mean(1), np.zeros(len(costs))
    outputs: list[list[int]] = [[] for _ in costs]
    for edge, (producer, _) in enumerate(edges.tolist()):
        outputs[producer].append(edge)
    for task in range(len(costs) - 1, -1, -1):  # numbers are topological
        following = (communication[edge] + ranks[edges[edge, 1]] for edge in outputs[task])
        ranks[task] = mean[task] + max(following, default=0.0)
    return ranks


def find_slot(taken: list[tuple[float, float]], ready: float, cost: float) -> float:
    """The earliest start on a device from `ready` on: the first gap between tasks that is long enough."""
    start = ready
    for begin, end in taken:  # sorted
        if start + cost <= begin:
            break
        start = max(start, end)
    return start


def schedule_heft(
    costs: np.ndarray,
    edges: np.ndarray,
    communication: np.ndarray,
    held: np.ndarray | None = None,
    memory: np.ndarray | None = None,
) -> HeftSchedule:
    """HEFT: schedule tasks, numbered topologically, with costs (N, D), edges (E, 2) and what each edge costs between
    two different devices (E,). With `held` (N,) and `memory` (D,), a device without room for a task is passed over,
    unless none has room."""
    tasks, devices = costs.shape
    held = np.zeros(tasks) if held is None else held
    room = np.full(devices, np.inf) if memory is None else memory.astype(float)
    chosen, start, finish = np.zeros(tasks, int), np.zeros(tasks), np.zeros(tasks)
    taken: list[list[tuple[float, float]]] = [[] for _ in range(devices)]
    inputs: list[list[int]] = [[] for _ in range(tasks)]
    for edge, (_, consumer) in enumerate(edges.tolist()):
        inputs[consumer].append(edge)
    ranks = rank_upward(costs, edges, communication)
    ties = np.round(ranks / (ranks.max(initial=0.0) or 1.0), 12)  # equal ranks differ by rounding
    for task in np.lexsort((np.arange(tasks), -ties)).tolist():
        options = np.nonzero(room >= held[task])[0].tolist() or [int(room.argmax())]
        best: tuple[float, float, int] | None = None
        for device in options:
            arrivals = [
                finish[edges[edge, 0]] + (communication[edge] if chosen[edges[edge, 0]] != device else 0.0)
                for edge in inputs[task]
            ]
            begin = find_slot(taken[device], max(arrivals, default=0.0), costs[task, device])
            candidate = (begin + float(costs[task, device]), begin, device)
            best = candidate if best is None or candidate < best else best
        assert best is not None
        finish[task], start[task], chosen[task] = best
        room[chosen[task]] -= held[task]
        taken[chosen[task]] = sorted([*taken[chosen[task]], (start[task], finish[task])])
    return HeftSchedule(chosen, start, finish)


def place_by_heft(simulator: Simulator) -> np.ndarray:
    """The devices of a schedule by HEFT of the nodes, each with the time of its forward and backward pass. A device
    whose parameters, inputs and outputs would exceed its memory is passed over, which the paper does not do."""
    graph, step = simulator.graph, simulator.step
    seconds = np.bincount(step.nodes, weights=step.seconds, minlength=len(graph))
    costs = np.repeat(seconds[:, None], simulator.devices, 1)
    sizes, cluster = graph.get_sizes("output_bytes"), simulator.cluster
    learned = np.bincount(step.nodes, minlength=len(graph)) > 1  # a gradient comes back
    sources = graph.edges[:, 0]
    transfers = (1 + learned[sources]) * (cluster.latency + sizes[sources] / cluster.bandwidth)
    received = np.bincount(graph.edges[:, 1], weights=sizes[sources], minlength=len(graph))  # at most
    held = simulator.weights + sizes + graph.get_sizes("saved_bytes") + received
    room = np.full(simulator.devices, cluster.memory)
    return schedule_heft(costs, graph.edges, transfers, held, room).devices
