"""An event-driven simulator of a training step on devices.

The step has the operators of a forward pass and those of the backward pass, each on the device of its forward
operator, with twice its FLOPs. A device runs one operator at a time: of those whose inputs have arrived, the first in
the order of the program. An output goes to each other device that reads it once, over the link between the two, which
carries one tensor at a time in the order in which they were ready; links work while devices compute. A tensor is in
memory from the start of its operator, on another device from the end of that, until its last reader there has
finished; parameters with their gradients and optimiser states are there all the time. Gradients of one tensor from
several readers on one device are summed there and sent once, by the last of them, which also has the memory of the sum.

Many placements are simulated in lockstep: each goes from event to event of its own, and an event of all of them is one
step of NumPy. The next event of a placement is the start of the operator that can start first. That is causal: whatever
becomes ready later starts later; and a link has one sender, so its transfers come in the order of that device's
operators.

Letters: B placements, N nodes, O operators of the step, T tensors, D devices.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

import numpy as np

from headwise.placement.cluster import Cluster
from headwise.placement.graph import SIZES, OperatorGraph

BACKWARD_FLOPS = 2  # of an operator's forward pass: gradients of its inputs and of its parameters
AT_ONCE = 256  # placements that are simulated in lockstep
MAX_KNOWN = 100_000  # placements whose runtimes are kept


@dataclass(frozen=True)
class Tensor:
    """What an operator of the step gives to others."""

    producer: int
    size: float  # bytes
    readers: tuple[int, ...]
    gradient_of: int = -1  # the operator of whose output it is a gradient; -1: it is none


@dataclass(frozen=True, eq=False)
class Step:
    """The operators of a training step in the order of the program: N of the forward pass, then those of the backward
    pass. `nodes` has the node of each, whose device it is on."""

    nodes: np.ndarray
    seconds: np.ndarray
    tensors: tuple[Tensor, ...]
    forward: int  # number of operators of the forward pass


class Transfer(NamedTuple):
    """The output of an operator on its way from one device to another."""

    operator: int
    device: int
    target: int
    start: float
    end: float


@dataclass(frozen=True, eq=False)
class Schedule:
    """What a simulation of B placements did."""

    simulator: Simulator
    devices: np.ndarray  # (B, O) of the operators
    start: np.ndarray  # (B, O) seconds
    end: np.ndarray  # (B, O)
    sent: np.ndarray  # (B, T, D) seconds at which the transfer of a tensor to a device began; NaN: there was none
    summed: np.ndarray  # (B, T) True = a gradient that was added to others on its device

    @property
    def runtime(self) -> np.ndarray:
        """Seconds of the step, (B,)."""
        result: np.ndarray = self.end.max(1)
        return result

    def list_transfers(self, row: int = 0) -> list[Transfer]:
        """The transfers of one placement by their start."""
        simulator, transfers = self.simulator, []
        for number, target in np.argwhere(~np.isnan(self.sent[row])).tolist():
            operator, start = simulator.step.tensors[number].producer, float(self.sent[row, number, target])
            end = start + float(simulator.delays[number])
            transfers.append(Transfer(operator, int(self.devices[row, operator]), target, start, end))
        return sorted(transfers, key=lambda transfer: transfer.start)

    def bound_memory(self) -> np.ndarray:
        """Bytes of each device if nothing were ever freed, (B, D)."""
        simulator = self.simulator
        there = ~np.isnan(self.sent)
        owners = np.take_along_axis(self.devices, simulator.producers[None], 1)  # (B, T)
        np.put_along_axis(there, owners[:, :, None], True, 2)
        held: np.ndarray = simulator.hold_weights(self.devices) + np.einsum("btd,t->bd", there, simulator.sizes)
        return held

    def measure_memory(self) -> np.ndarray:
        """The largest number of bytes on each device at any time, (B, D)."""
        simulator, (rows, _), devices = self.simulator, self.devices.shape, self.simulator.devices
        begin, until = np.full((2, rows, len(simulator.sizes), devices), np.nan)
        producers, pairs = simulator.producers, simulator.pairs
        made = self.end[:, producers]  # (B, T)
        np.copyto(begin, made[:, :, None], where=~np.isnan(self.sent))  # a buffer waits for the transfer
        owners = np.take_along_axis(self.devices, producers[None], 1)[:, :, None]
        np.put_along_axis(begin, owners, self.start[:, producers][:, :, None], 2)
        last = np.fmax(made, np.fmax.reduce(self.sent + simulator.delays[:, None], 2, initial=0.0))
        np.put_along_axis(until, owners, last[:, :, None], 2)  # until it is made and sent
        row, tensor = np.nonzero(~self.summed[:, pairs[:, 0]])
        tensor, reader = pairs[tensor].T
        np.fmax.at(until, (row, tensor, self.devices[row, reader]), self.end[row, reader])  # and read
        return simulator.hold_weights(self.devices) + find_peaks(begin, until, simulator.sizes)


def find_peaks(begin: np.ndarray, until: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """The largest sum of sizes of tensors that are there at once, from `begin` to `until` (B, T, D); (B, D). What ends
    when something else begins makes room for it."""
    rows, _, devices = begin.shape
    row, tensor, device = np.nonzero(~np.isnan(begin))
    place, change = row * devices + device, sizes[tensor]
    times = np.concatenate([until[row, tensor, device], begin[row, tensor, device]])
    place, change = np.tile(place, 2), np.concatenate([-change, change])
    order = np.lexsort((change, times, place))  # frees come first
    place, total = place[order], np.cumsum(change[order])
    first = np.searchsorted(place, np.arange(rows * devices))
    before = np.where(first > 0, total[np.maximum(first - 1, 0)], 0.0)
    peaks = np.zeros(rows * devices)
    np.maximum.at(peaks, place, total - before[place])
    return peaks.reshape(rows, devices)


def build_step(graph: OperatorGraph, cluster: Cluster, backward: bool = True) -> Step:
    """The step of a graph. A node without parameters, all of whose inputs are such, needs no backward pass."""
    flops, sizes, weights, saved = (graph.get_sizes(key) for key in SIZES)
    inputs = [[graph.numbers[name] for name in node.inputs] for node in graph.nodes]
    readers: list[list[int]] = [[] for _ in inputs]
    for number, sources in enumerate(inputs):
        for source in sources:
            readers[source].append(number)
    learns = list[bool]()
    for number, sources in enumerate(inputs):
        learns.append(backward and (weights[number] > 0 or any(learns[source] for source in sources)))
    moved = sizes + weights + 2 * saved + [sum(sizes[source] for source in sources) for sources in inputs]
    back = {number: len(inputs) + place for place, number in enumerate(np.nonzero(np.array(learns))[0][::-1].tolist())}
    nodes = np.array([*range(len(inputs)), *back], np.int64)
    seconds = np.concatenate(
        [
            cluster.time_operators(flops, moved),
            cluster.time_operators(BACKWARD_FLOPS * flops, 2 * moved)[list(back)],
        ]
    )
    tensors = []
    for number, targets in enumerate(readers):
        # the output is read by the next operators, by their backward passes and by its own
        later = [back[each] for each in (*targets, number) if each in back]
        tensors.append(Tensor(number, float(sizes[number]), tuple(dict.fromkeys((*targets, *later)))))
        if saved[number] and number in back:
            tensors.append(Tensor(number, float(saved[number]), (back[number],)))
    for number, sources in enumerate(inputs):  # a gradient for each input
        tensors += [Tensor(back[number], float(sizes[each]), (back[each],), each) for each in sources if each in back]
    tensors.sort(key=lambda tensor: tensor.producer)
    return Step(nodes, seconds, tuple(tensors), len(inputs))


class Simulator:
    """Simulates placements of one graph on one cluster."""

    def __init__(self, graph: OperatorGraph, cluster: Cluster, backward: bool = True):
        self.devices = cluster.devices or graph.devices or 1
        self.has_backward = backward
        self.graph, self.cluster = graph, cluster.replace(devices=self.devices)
        self.step = step = build_step(graph, cluster, backward)
        self.weights = (cluster.states if backward else 1) * graph.get_sizes("parameter_bytes")
        self.producers = np.array([tensor.producer for tensor in step.tensors], np.int64)
        self.gradient_of = np.array([tensor.gradient_of for tensor in step.tensors], np.int64)
        self.sizes = np.array([tensor.size for tensor in step.tensors])
        self.delays = cluster.latency + self.sizes / cluster.bandwidth
        counts = [len(tensor.readers) for tensor in step.tensors]
        readers = [reader for tensor in step.tensors for reader in tensor.readers]
        self.pairs = np.column_stack([np.repeat(np.arange(len(counts)), counts), np.array(readers, np.int64)])
        self.known: dict[bytes, float] = {}  # runtimes of placements that were measured before
        self.calls = 0  # placements whose runtimes were asked for
        settings = f"{graph.digest} {self.cluster.model_dump_json()} {backward}"
        self.key = hashlib.sha256(settings.encode()).hexdigest()[:16]  # of the graph on this cluster

    @property
    def serial(self) -> float:
        """Seconds of the step on one device with enough memory, by which rewards are scaled."""
        return float(self.step.seconds.sum())

    def hold_weights(self, devices: np.ndarray) -> np.ndarray:
        """Bytes of parameters and their states on each device, (B, D), of operators on devices (B, O)."""
        placement = devices[:, : len(self.graph)]
        return np.stack([(placement == device) @ self.weights for device in range(self.devices)], axis=1)

    def simulate(self, placements: np.ndarray) -> Schedule:
        """Simulate placements (B, N) from beginning to end."""
        return Lockstep(self, np.asarray(placements, np.int64)).run()

    def measure(self, placements: np.ndarray) -> np.ndarray:
        """Seconds of a step for each placement (B, N); infinite if it does not fit. A placement that was measured
        before is not simulated again."""
        rows = np.asarray(placements, np.int16)
        self.calls += len(rows)
        keys = [row.tobytes() for row in rows]
        if len(self.known) > MAX_KNOWN:
            self.known.clear()
        new = {key: number for number, key in enumerate(keys) if key not in self.known}
        numbers = list(new.values())
        for first in range(0, len(numbers), AT_ONCE):
            chosen = rows[numbers[first : first + AT_ONCE]]
            self.known.update(zip(list(new)[first : first + AT_ONCE], self._measure(chosen).tolist(), strict=True))
        return np.array([self.known[key] for key in keys])

    def _measure(self, placements: np.ndarray) -> np.ndarray:
        schedule = self.simulate(placements)
        runtimes = schedule.runtime
        large = np.nonzero((schedule.bound_memory() > self.cluster.memory).any(1))[0]
        if len(large):  # only these need a closer look
            parts = (
                array[large]
                for array in (schedule.devices, schedule.start, schedule.end, schedule.sent, schedule.summed)
            )
            full = (Schedule(self, *parts).measure_memory() > self.cluster.memory).any(1)
            runtimes[large[full]] = inf
        return runtimes


class Lockstep:
    """The state of B simulations."""

    def __init__(self, simulator: Simulator, placements: np.ndarray):
        self.simulator, step = simulator, simulator.step
        rows, operators, devices = len(placements), len(step.nodes), simulator.devices
        self.rows = np.arange(rows)
        self.devices = placements[:, step.nodes]  # (B, O)
        pairs = simulator.pairs
        self.first_tensor = np.searchsorted(simulator.producers, np.arange(operators + 1))
        self.first_reader = np.searchsorted(pairs[:, 0], np.arange(len(simulator.sizes) + 1))
        self.needed = np.zeros((rows, len(simulator.sizes), devices), bool)  # a tensor has readers on a device
        self.needed[self.rows[:, None], pairs[:, 0], self.devices[:, pairs[:, 1]]] = True
        self.missing = np.tile(np.bincount(pairs[:, 1], minlength=operators), (rows, 1))  # inputs, (B, O)
        self.ready = np.where(self.missing == 0, 0.0, inf)  # seconds; infinite before all inputs are known, and after
        self.arrived = np.zeros((rows, operators))  # the last known input
        self.free = np.zeros((rows, devices))
        self.links = np.zeros((rows, devices, devices))
        self.start = np.zeros((rows, operators))
        self.sent = np.full(self.needed.shape, np.nan)
        self.summed = np.zeros(self.needed.shape[:2], bool)
        gradients = np.nonzero(simulator.gradient_of >= 0)[0]
        self.gradients = np.zeros((rows, len(simulator.graph), devices), int)  # of a tensor, that a device still owes
        place = (self.rows[:, None], simulator.gradient_of[gradients], self.devices[:, simulator.producers[gradients]])
        np.add.at(self.gradients, place, 1)

    def run(self) -> Schedule:
        seconds, rows = self.simulator.step.seconds, self.rows
        for _ in range(len(seconds)):
            possible = np.maximum(self.ready, np.take_along_axis(self.free, self.devices, 1))
            operator = possible.argmin(1)  # (B,) the first in the program of those that can start first
            start = possible[rows, operator]
            self.start[rows, operator], self.ready[rows, operator] = start, inf
            self.free[rows, self.devices[rows, operator]] = end = start + seconds[operator]
            count = self.first_tensor[operator + 1] - self.first_tensor[operator]
            for number in range(int(count.max())):
                chosen = np.nonzero(count > number)[0]
                self.hand_on(chosen, operator[chosen], self.first_tensor[operator[chosen]] + number, end[chosen])
        return Schedule(self.simulator, self.devices, self.start, self.start + seconds, self.sent, self.summed)

    def hand_on(self, rows: np.ndarray, operator: np.ndarray, tensor: np.ndarray, end: np.ndarray) -> None:
        """Send a tensor of each of these rows to all devices that read it, and tell its readers."""
        device, ranks = self.devices[rows, operator], np.arange(len(rows))
        begin = np.maximum(self.links[rows, device], end[:, None])  # (R, D)
        remote = self.needed[rows, tensor] & ~self.add_gradients(rows, tensor, device)[:, None]
        remote[ranks, device] = False
        arrival = np.where(remote, begin + self.simulator.delays[tensor][:, None], end[:, None])
        if remote.any():
            self.links[rows, device] = np.where(remote, arrival, self.links[rows, device])
            self.sent[rows, tensor] = np.where(remote, begin, np.nan)
        first = self.first_reader[tensor]
        count = self.first_reader[tensor + 1] - first
        rank = np.repeat(ranks, count)
        shift = np.arange(len(rank)) - np.repeat(np.cumsum(count) - count, count)
        reader, row = self.simulator.pairs[first[rank] + shift, 1], rows[rank]
        place = (row, reader)
        latest = np.maximum(self.arrived[place], arrival[rank, self.devices[place]])
        missing = self.missing[place] - 1
        self.arrived[place], self.missing[place] = latest, missing
        self.ready[place] = np.where(missing == 0, latest, inf)

    def add_gradients(self, rows: np.ndarray, tensor: np.ndarray, device: np.ndarray) -> np.ndarray:
        """Whether tensors are gradients that others on their devices follow, to which they are added."""
        source = self.simulator.gradient_of[tensor]
        known = source >= 0
        place = (rows[known], source[known], device[known])
        self.gradients[place] -= 1
        self.summed[rows[known], tensor[known]] = self.gradients[place] > 0
        summed: np.ndarray = self.summed[rows, tensor]
        return summed
