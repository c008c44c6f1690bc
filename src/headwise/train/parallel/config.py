"""The `parallel` table of `[train]`: how several processes train one model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from headwise.config.base import Config, PositiveFloat, Table, slot

PARALLEL = Table(
    "parallel",
    default="ddp",
    place="train.parallel",
    homes={
        "ddp": "headwise.train.parallel.config:DdpConfig",
        "none": "headwise.train.parallel.config:NoneConfig",
    },
)


class ParallelConfig(Config):
    """Base of the strategies. One process needs none, so that the number of processes is no part of an experiment."""

    kind: str
    timeout: PositiveFloat = 1800.0  # seconds after which a process that does not answer ends training


class DdpConfig(ParallelConfig):
    """Distributed data parallel (DDP): each process has the whole model and takes its share of the rows of each batch;
    gradients are summed over the processes."""

    kind: Literal["ddp"] = "ddp"


class NoneConfig(ParallelConfig):
    """One process; several are refused."""

    kind: Literal["none"] = "none"


if TYPE_CHECKING:
    AnyParallel: TypeAlias = ParallelConfig
else:
    AnyParallel = slot(PARALLEL)
