"""What the loop is given, where it stands, and how it ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
from torch import Tensor, nn

Row = Mapping[str, Any]
Observer = Callable[[Row], None]
Validate = Callable[[nn.Module], Mapping[str, float]]
Samples = Callable[[nn.Module], Sequence[Mapping[str, str]]]


class Data(Protocol):
    """Batches in an order that is a pure function of the epoch."""

    def plan(self, epoch: int) -> Sequence[np.ndarray]: ...
    def batch(self, numbers: np.ndarray) -> Any: ...


@runtime_checkable
class HasUnit(Protocol):
    """Data that count other things than tokens, such as images."""

    unit: str


@dataclass
class LossState:
    """What a loss depends on beside model and batch. The learner owns it, and a checkpoint keeps what is `carried`."""

    progress: float = 0.0  # the share of the training budget that is spent
    # What a model takes from batch to batch. A loss puts other tensors there and leaves the old ones as they were.
    carried: Mapping[str, Tensor] = field(default_factory=dict)


class Losses(Protocol):
    """Sums over tokens: `total` to differentiate, plain `nll`, and their `count`."""

    @property
    def total(self) -> Tensor: ...
    @property
    def nll(self) -> Tensor: ...
    @property
    def count(self) -> Tensor: ...


class Task(Protocol):
    """What is learnt, as far as the loop needs to know it."""

    def init_state(self, model: nn.Module) -> LossState: ...
    def loss(self, model: nn.Module, batch: Any, state: LossState) -> Losses: ...


@dataclass(frozen=True)
class Metric:
    """Which of the validation's scores decides what is best."""

    name: str = "nll"
    lower: bool = True

    def is_better(self, new: float, old: float) -> bool:
        return new < old if self.lower else new > old


@dataclass
class State:
    """Where a run stands; stored as a checkpoint's state.json."""

    step: int = 0
    epoch: int = 0
    index: int = 0  # batches of the epoch that are done
    minutes: float = 0.0
    tokens: int = 0
    validated: int = 0  # the last step that was validated
    best: dict[str, Any] = field(default_factory=dict)  # name, value, step
    stale: int = 0  # validations since the best
    skips: int = 0  # updates refused in a row

    def without_minutes(self) -> dict[str, Any]:
        """All of it that does not depend on the clock."""
        return {key: value for key, value in asdict(self).items() if key != "minutes"}


@dataclass(frozen=True)
class Result:
    """How a training ended. `reason`: steps, epochs, minutes, patience, or the name of a signal."""

    reason: str
    step: int
    epoch: int
    minutes: float
    best: Mapping[str, Any]

    @property
    def interrupted(self) -> bool:
        return self.reason.startswith("SIG")
