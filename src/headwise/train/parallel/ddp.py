"""Distributed data parallel: each process has the whole model and computes the gradient of its rows of each batch.

Row i of a batch belongs to process i mod N. Each process collates the whole batch and keeps its rows, so that masks and
padding are those of one process. Gradients are summed, not averaged: losses are sums over tokens, and the optimiser
divides by the number of tokens of all processes.

Letters: B rows of the whole batch, b rows of this process, N processes.
"""

import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.autograd.function import once_differentiable
from torch.nn.parallel import DistributedDataParallel

from headwise.blocks.replicas import REPLICAS, Replicas
from headwise.data.collate import take_rows
from headwise.train.parallel.group import Group
from headwise.train.parallel.strategy import Strategy


class DataParallel(Strategy):
    """Distributed data parallel by torch's own engine, which sums gradients while the backward pass goes on."""

    def __init__(self, group: Group):
        self.group, self.rank = group, group.rank
        # Sums inside of a model have connections of their own: they and DDP's begin in any order.
        self.channel = distributed.new_group()
        self.module: DistributedDataParallel | None = None
        self.total = 0  # rows of the last batch

    def wrap(self, module: nn.Module) -> nn.Module:
        # Buffers are not broadcast: those that training changes, running statistics, are used in evaluation alone, by
        # the main process. An expert without tokens has no gradient, so unused parameters are found at each step.
        with warnings.catch_warnings(action="ignore", category=FutureWarning):  # newer versions rename the first one
            self.module = DistributedDataParallel(module, broadcast_buffers=False, find_unused_parameters=True)
        self.module.register_comm_hook(None, sum_bucket)
        return self.module

    @contextmanager
    def divide(self, batch: Any) -> Iterator[Any]:
        self.total = len(batch)
        replicas = SharedRows(self.group, self.total, self.channel)
        token = REPLICAS.set(replicas)
        try:
            yield take_rows(batch, replicas.rows)
        finally:
            REPLICAS.reset(token)

    def sync_last(self, batches: Iterable[Any]) -> Iterator[tuple[Any, AbstractContextManager[object]]]:
        assert self.module is not None
        for batch, last in mark_last(batches):
            yield batch, nullcontext() if last else self.module.no_sync()

    def sum(self, values: Tensor) -> Tensor:
        distributed.all_reduce(values)
        return values

    def gather_carried(self, carried: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        replicas = SharedRows(self.group, self.total, self.channel)
        return {name: replicas.gather_rows(tensor) for name, tensor in carried.items()}

    def select_carried(self, carried: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        self.total = len(next(iter(carried.values()))) if carried else 0
        replicas = SharedRows(self.group, self.total, self.channel)
        return {name: replicas.select_rows(tensor) for name, tensor in carried.items()}


def mark_last(batches: Iterable[Any]) -> Iterator[tuple[Any, bool]]:
    """Batches, and whether each is the last one.

    >>> list(mark_last("ab"))
    [('a', False), ('b', True)]
    """
    iterator = iter(batches)
    for batch in iterator:
        for following in iterator:
            yield batch, False
            batch = following
        yield batch, True


class SharedRows(Replicas):
    """One of several processes, with every N-th row of a batch. A process without a row computes the first one, whose
    loss counts nothing."""

    shared = True

    def __init__(self, group: Group, total: int, channel: Any):
        self.size, self.total, self.channel = group.size, total, channel
        self.idle = group.rank >= total
        self.rows = slice(0, 1) if self.idle else slice(group.rank, None, group.size)

    def sum(self, values: Tensor) -> Tensor:
        return SumOverProcesses.apply(values * 0 if self.idle else values, self.channel)

    def gather_rows(self, values: Tensor) -> Tensor:
        most = -(-self.total // self.size)
        padded = values.new_zeros(most, *values.shape[1:])
        padded[: len(values)] = values  # one that a process without rows computes is cut off below
        parts = [torch.empty_like(padded) for _ in range(self.size)]
        distributed.all_gather(parts, padded, self.channel)
        return torch.stack(parts, 1).flatten(0, 1)[: self.total]  # N x (b, ...) -> (b, N, ...) -> (B, ...)

    def select_rows(self, values: Tensor) -> Tensor:
        return values[self.rows]


class SumOverProcesses(torch.autograd.Function):
    """The sum over processes. Each of them uses the result, so that its gradient is the sum of theirs."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, channel: Any) -> Tensor:
        ctx.channel = channel
        total = values.clone()
        distributed.all_reduce(total, group=channel)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        gradient = gradient.contiguous().clone()
        distributed.all_reduce(gradient, group=ctx.channel)
        return gradient, None


def sum_bucket(state: None, bucket: distributed.GradBucket) -> torch.futures.Future[Tensor]:
    """DDP's communication hook: the sum of gradients over the processes."""
    work = distributed.all_reduce(bucket.buffer(), async_op=True)
    assert work is not None
    return work.get_future().then(lambda future: future.value()[0])
