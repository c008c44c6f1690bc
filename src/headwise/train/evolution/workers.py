"""Evaluation of a population: parts of it, in this process or in others."""

from __future__ import annotations

import logging
import signal
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import nn

from headwise.utils.parent import die_with_parent

log = logging.getLogger(__name__)

AT_ONCE = 8  # members that are evaluated together, whatever the number of processes: sums of floats depend on it


class Fitness(NamedTuple):
    """What members of a population have achieved."""

    losses: np.ndarray  # (M,): lower is better
    steps: int  # that were taken


class MemberTask(Protocol):
    """A task whose models can be evaluated as members of a population."""

    def measure_members(self, model: nn.Module, members: np.ndarray, batch: Any) -> Fitness: ...


_WORK: list[Any] = []  # task and model, in a worker process


def start_worker(task: MemberTask, model: nn.Module) -> None:
    """Prepare a worker process."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all processes of a terminal: the parent handles it
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    _WORK[:] = [task, model]


def measure_part(members: np.ndarray, batch: Any) -> Fitness:
    """Evaluate members in a worker process."""
    task, model = _WORK
    fitness: Fitness = task.measure_members(model, members, batch)
    return fitness


class Workers:
    """Evaluates populations in `jobs` processes, which are started when they are needed."""

    def __init__(self, task: MemberTask, model: nn.Module, jobs: int):
        self.task, self.model, self.jobs = task, model, jobs
        self.pool: ProcessPoolExecutor | None = None

    def measure(self, population: np.ndarray, batch: Any) -> Fitness:
        """The fitness of all members, on the same batch."""
        parts = [population[first : first + AT_ONCE] for first in range(0, len(population), AT_ONCE)]
        results = self._measure_in_processes(parts, batch) if self.jobs > 1 else self._measure_here(parts, batch)
        return Fitness(np.concatenate([part.losses for part in results]), sum(part.steps for part in results))

    def _measure_here(self, parts: Sequence[np.ndarray], batch: Any) -> list[Fitness]:
        return [self.task.measure_members(self.model, part, batch) for part in parts]

    def _measure_in_processes(self, parts: Sequence[np.ndarray], batch: Any) -> list[Fitness]:
        try:
            if self.pool is None:
                arguments = (self.task, self.model)
                self.pool = ProcessPoolExecutor(self.jobs, get_context("spawn"), start_worker, arguments)
            return list(self.pool.map(measure_part, parts, [batch] * len(parts)))
        except BrokenProcessPool:  # such as in a script without `if __name__ == "__main__"`
            log.warning("worker processes ended before their work; it goes on in one process")
            self.jobs = 1
            return self._measure_here(parts, batch)

    def close(self) -> None:
        if self.pool is not None:
            self.pool.shutdown(cancel_futures=True)
            self.pool = None
