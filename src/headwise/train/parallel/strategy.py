"""Strategies: how the processes of a group divide a step of training."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from torch import Tensor, nn

from headwise.train.parallel.group import Group


class Strategy:
    """One process: the model as it is, whole batches."""

    rank = 0

    def wrap(self, module: nn.Module) -> nn.Module:
        """The module that computes the loss, as it is called in training."""
        return module

    @contextmanager
    def divide(self, batch: Any) -> Iterator[Any]:
        """The rows of a batch that this process takes, in a block for their loss and gradient."""
        yield batch

    def sync_last(self, batches: Iterable[Any]) -> Iterator[tuple[Any, AbstractContextManager[object]]]:
        """The batches of a step, each with a context for its loss and gradient: that of the last one adds up the
        gradients of all processes."""
        return ((batch, nullcontext()) for batch in batches)

    def sum(self, values: Tensor) -> Tensor:
        """The sums of values over the processes."""
        return values

    def gather_carried(self, carried: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """What a loss carries from batch to batch, with the rows of all processes."""
        return carried

    def select_carried(self, carried: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The rows of this process."""
        return carried


ALONE = Strategy()


def make_strategy(kind: str, group: Group) -> Strategy:
    """The strategy of `train.parallel` for a group."""
    if group.size == 1:
        return ALONE
    from headwise.train.parallel.ddp import DataParallel

    return DataParallel(group)
