"""An event-driven simulator of one placement, written with queues: what `headwise.placement.simulator` is compared with."""

from __future__ import annotations

import heapq
from collections import defaultdict

import numpy as np

from headwise.placement.simulator import Simulator


class Reference:
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
