"""The simulator against a schedule by hand, an event queue, and all schedules of small graphs."""

from __future__ import annotations

import heapq
from collections import defaultdict
from itertools import permutations, product

import numpy as np
import pytest

from headwise.placement.cluster import Cluster
from headwise.placement.graph import Node, OperatorGraph
from headwise.placement.heuristics import METHODS, Budget
from headwise.placement.random_graphs import generate_graph
from headwise.placement.simulator import Simulator

# one FLOP a second, one byte a second, nothing else costs time
SLOW = Cluster(devices=2, flops=1, memory_bandwidth=1e30, overhead=0, bandwidth=1, latency=0, memory=1e6)


def diamond() -> OperatorGraph:
    """a -> b, c -> d"""
    nodes = (
        Node("a", "x", 2, output_bytes=1, parameter_bytes=10),
        Node("b", "x", 4, output_bytes=2, inputs=("a",)),
        Node("c", "x", 3, output_bytes=3, inputs=("a",)),
        Node("d", "x", 1, output_bytes=1, inputs=("b", "c")),
    )
    return OperatorGraph.from_nodes("diamond", nodes)


def test_a_forward_pass_by_hand():
    simulator = Simulator(diamond(), SLOW, backward=False)
    # a 0-2 on 0; its byte arrives at 3 on 1, where c runs 3-6; b 2-6 on 0; c's 3 bytes arrive at 9 on 0; d 9-10
    schedule = simulator.simulate(np.array([[0, 0, 1, 0]]))
    assert schedule.start[0].tolist() == [0, 2, 3, 9]
    assert schedule.runtime[0] == 10
    assert [(each.operator, each.device, each.target, each.start, each.end) for each in schedule.list_transfers()] == [
        (0, 0, 1, 2.0, 3.0),
        (2, 1, 0, 6.0, 9.0),
    ]
    # device 0: 10 of parameters, a's byte to the end of b, b's 2 and c's 3 (from its end) until d is done, d's 1
    assert schedule.measure_memory()[0].tolist() == [10 + 2 + 3 + 1, 1 + 3]


def test_a_training_step_by_hand():
    simulator = Simulator(diamond(), SLOW)
    schedule = simulator.simulate(np.array([[0, 0, 1, 0]]))
    # backward: d' 10-12 on 0; b' 12-20; the gradient of c's output, 3 bytes, arrives at 15; c' 15-21; that of a's
    # output at 22; a' 22-26
    assert schedule.start[0, 4:].tolist() == [10, 15, 12, 22]
    assert [simulator.step.nodes[operator] for operator in range(4, 8)] == [3, 2, 1, 0]
    assert schedule.runtime[0] == 26
    assert simulator.weights.tolist() == [40, 0, 0, 0]  # weights, gradients, two moments


def test_a_node_before_all_parameters_has_no_backward_pass():
    nodes = (Node("input", "x", 5), Node("layer", "x", 7, parameter_bytes=1, inputs=("input",)))
    simulator = Simulator(OperatorGraph.from_nodes("two", nodes), SLOW)
    assert simulator.step.nodes.tolist() == [0, 1, 1]
    assert simulator.serial == 5 + 7 + 14


def test_gradients_of_one_tensor_are_sent_once():
    nodes = (
        Node("weights", "parameter", 0, output_bytes=100, parameter_bytes=100),
        *(Node(f"step{number}", "x", 1, output_bytes=1, inputs=("weights",)) for number in range(3)),
    )
    simulator = Simulator(OperatorGraph.from_nodes("shared", nodes), SLOW)
    schedule = simulator.simulate(np.array([[0, 1, 1, 1]]))
    assert len(schedule.list_transfers()) == 2  # the weights, and the sum of three gradients
    assert schedule.runtime[0] == 100 + 3 + 3 * 2 + 100


class Reference:
    """An event-driven simulator of one placement, written with queues."""

    def __init__(self, simulator: Simulator, placement: list[int]):
        step, cluster = simulator.step, simulator.cluster
        self.tensors, self.seconds, self.cluster = step.tensors, step.seconds.tolist(), cluster
        self.device = [placement[node] for node in step.nodes]
        self.inputs = defaultdict(list)
        for number, tensor in enumerate(self.tensors):
            for reader in tensor.readers:
                self.inputs[reader].append(number)
        self.missing = [len(self.inputs[operator]) for operator in range(len(self.device))]
        self.ready = defaultdict(list)
        self.busy, self.link_free = set(), defaultdict(float)
        self.events = []
        self.starts = {}
        self.memory = defaultdict(list)  # device -> (time, change)
        self.weights = np.bincount(placement, weights=simulator.weights, minlength=simulator.devices)
        self.uses = {}
        self.added = set()
        self.owed = defaultdict(int)
        for tensor in self.tensors:
            if tensor.gradient_of >= 0:
                self.owed[tensor.gradient_of, self.device[tensor.producer]] += 1

    def run(self) -> tuple[float, np.ndarray]:
        for operator, count in enumerate(self.missing):
            if not count:
                heapq.heappush(self.ready[self.device[operator]], operator)
        now = 0.0
        self.dispatch(now)
        while self.events:
            now = self.events[0][0]
            while self.events and self.events[0][0] == now:
                _, kind, device, what = heapq.heappop(self.events)
                if kind == "operator":
                    self.busy.discard(device)
                    self.finish(what, device, now)
                else:
                    self.release(what, self.device[self.tensors[what].producer], now)
                    self.deliver(what, device)
            self.dispatch(now)
        return now, self.weights + [self.peak(device) for device in range(len(self.weights))]

    def dispatch(self, now: float) -> None:
        for device, waiting in self.ready.items():
            if waiting and device not in self.busy:
                operator = heapq.heappop(waiting)
                self.busy.add(device)
                self.starts[operator] = now
                heapq.heappush(self.events, (now + self.seconds[operator], "operator", device, operator))
                for tensor in self.tensors:
                    if tensor.producer == operator:
                        self.memory[device].append((now, tensor.size))

    def finish(self, operator: int, device: int, now: float) -> None:
        for number, tensor in enumerate(self.tensors):
            if tensor.producer != operator:
                continue
            self.owed[tensor.gradient_of, device] -= 1
            if tensor.gradient_of >= 0 and self.owed[tensor.gradient_of, device]:  # summed: nothing is sent
                (reader,) = tensor.readers
                self.missing[reader] -= 1
                self.memory[device].append((now, -tensor.size))
                self.added.add(number)
                continue
            places = [self.device[reader] for reader in tensor.readers]
            others = sorted(set(places) - {device})
            self.uses[number, device] = places.count(device) + len(others)
            for other in others:
                start = max(now, self.link_free[device, other])
                end = start + self.cluster.latency + tensor.size / self.cluster.bandwidth
                self.link_free[device, other] = end
                self.uses[number, other] = places.count(other)
                self.memory[other].append((now, tensor.size))
                heapq.heappush(self.events, (end, "transfer", other, number))
            self.deliver(number, device)
            if not places:
                self.memory[device].append((now, -tensor.size))
        for number in self.inputs[operator]:
            if number not in self.added:
                self.release(number, device, now)

    def deliver(self, number: int, device: int) -> None:
        for reader in self.tensors[number].readers:
            if self.device[reader] == device:
                self.missing[reader] -= 1
                if not self.missing[reader]:
                    heapq.heappush(self.ready[device], reader)

    def release(self, number: int, device: int, now: float) -> None:
        self.uses[number, device] -= 1
        if not self.uses[number, device]:
            self.memory[device].append((now, -self.tensors[number].size))

    def peak(self, device: int) -> float:
        held = top = 0.0
        for _, change in sorted(self.memory[device]):
            held += change
            top = max(top, held)
        return top


def test_an_event_queue_says_the_same():
    random = np.random.default_rng(0)
    for seed, devices in product(range(4), (2, 3)):
        simulator = Simulator(generate_graph(14, seed), Cluster(devices=devices, overhead=1e-4), backward=seed > 0)
        placements = random.integers(devices, size=(6, 14))
        schedule = simulator.simulate(placements)
        memory = schedule.measure_memory()
        assert (schedule.bound_memory() >= memory - 1).all()
        for row, placement in enumerate(placements):
            runtime, held = Reference(simulator, placement.tolist()).run()
            assert schedule.runtime[row] == pytest.approx(runtime, rel=1e-12)
            assert memory[row] == pytest.approx(held, rel=1e-12)


def time_orders(simulator: Simulator, placement: np.ndarray, orders: list[tuple[int, ...]]) -> float:
    """The end of the step if each device runs its operators in this order as early as it can; infinite if they wait for
    each other. Tensors are sent in the order of their producers."""
    step, where = simulator.step, placement[simulator.step.nodes]
    seconds, end, links, queues = step.seconds, {}, {}, [list(order) for order in orders]
    arrival: dict[tuple[int, int], float] = {}
    inputs = {
        number: [t for t, tensor in enumerate(step.tensors) if number in tensor.readers] for number in range(len(where))
    }
    free = [0.0] * len(orders)
    while any(queues):
        for device, queue in enumerate(queues):
            if queue and all((tensor, device) in arrival for tensor in inputs[queue[0]]):
                operator = queue.pop(0)
                begin = max([free[device], *(arrival[tensor, device] for tensor in inputs[operator])])
                end[operator] = free[device] = begin + seconds[operator]
                for number, tensor in enumerate(step.tensors):
                    if tensor.producer != operator:
                        continue
                    arrival[number, device] = end[operator]
                    for target in sorted({int(where[reader]) for reader in tensor.readers} - {device}):
                        sent = max(end[operator], links.get((device, target), 0.0))
                        links[device, target] = arrival[number, target] = sent + simulator.delays[number]
                break
        else:
            return np.inf
    return max(end.values())


@pytest.mark.parametrize("seed", range(3))
def test_no_order_of_operators_is_missed(seed):
    """Over all orders on each device: the simulator's own order gives its time exactly, none is faster than the best
    one, and the first operators that are ready lose little to it on these graphs."""
    graph = generate_graph(7, seed, width=3)
    simulator = Simulator(graph, Cluster(devices=2, overhead=1e-4), backward=False)
    for placement in np.random.default_rng(seed).integers(2, size=(4, 7)):
        schedule = simulator.simulate(placement[None])
        own = [
            tuple(np.nonzero(placement == device)[0][np.argsort(schedule.start[0][placement == device])])
            for device in range(2)
        ]
        runtime = schedule.runtime[0]
        assert time_orders(simulator, placement, own) == pytest.approx(runtime, rel=1e-12)
        times = [
            time_orders(simulator, placement, [one, two])
            for one in permutations(own[0])
            for two in permutations(own[1])
        ]
        assert min(times) <= runtime * (1 + 1e-12) and runtime <= 2 * min(times)  # Graham's bound


def test_brute_force_finds_the_best_placement():
    simulator = Simulator(generate_graph(8, 5), Cluster(devices=2))
    every = np.array(list(product(range(2), repeat=8)))
    best = METHODS["brute-force"](simulator, Budget(1, 0))
    assert simulator.measure(best[None])[0] == simulator.measure(every).min()
    for method in set(METHODS) - {"brute-force"}:
        placement = METHODS[method](simulator, Budget(64, 0))
        assert simulator.measure(placement[None])[0] >= simulator.measure(best[None])[0]


def test_what_does_not_fit_takes_forever():
    graph = diamond()
    needed = Simulator(graph, SLOW).simulate(np.zeros((1, 4))).measure_memory()[0, 0]
    for memory, fits in ((needed, True), (needed - 1, False)):
        simulator = Simulator(graph, SLOW.replace(memory=memory))
        assert np.isfinite(simulator.measure(np.zeros((1, 4)))[0]) == fits
        assert np.isfinite(simulator.measure(np.array([[0, 1, 1, 1]]))[0])


def test_devices_are_interchangeable():
    simulator = Simulator(generate_graph(30, 1), Cluster(devices=3))
    placements = np.random.default_rng(0).integers(3, size=(8, 30))
    assert simulator.measure(placements) == pytest.approx(simulator.measure((placements + 1) % 3), rel=1e-12)
