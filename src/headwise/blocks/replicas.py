"""What parts and losses ask of training on several processes: sums over all rows of a batch, each process having some.

Losses are sums over rows, so most parts need nothing of it. Those with statistics of the whole batch, such as the
capacity of experts or the mean over all boxes, compute them with `REPLICAS.get()`.

Letters: B rows of the whole batch, b rows of this process.
"""

from __future__ import annotations

from contextvars import ContextVar

from torch import Tensor


class Replicas:
    """One process, with all rows."""

    shared = False  # whether other processes have rows of the batch
    idle = False  # whether this process has no row: a batch may have fewer than there are processes

    def sum(self, values: Tensor) -> Tensor:
        """The sum over the processes; differentiable."""
        return values

    def gather_rows(self, values: Tensor) -> Tensor:
        """The rows of all processes in the order of the batch, without gradient: (b, ...) -> (B, ...)."""
        return values

    def select_rows(self, values: Tensor) -> Tensor:
        """The rows of this process: (B, ...) -> (b, ...)."""
        return values


REPLICAS: ContextVar[Replicas] = ContextVar("replicas", default=Replicas())  # noqa: B039  (it has no state)
