"""Types of the training loop: its arguments, its state and its result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
from torch import Tensor, nn

from headwise.errors import UserError

Row = Mapping[str, Any]
Validate = Callable[[nn.Module], Mapping[str, float]]
Samples = Callable[[nn.Module], Sequence[Mapping[str, str]]]


class Data(Protocol):
    """Training data: `plan` returns the batches of an epoch as arrays of example indices."""

    def plan(self, epoch: int) -> Sequence[np.ndarray]: ...  # the same at every call, so that a run can be resumed
    def batch(self, numbers: np.ndarray) -> Any: ...


@runtime_checkable
class HasUnit(Protocol):
    """Data whose `tokens` count something else, such as images."""

    unit: str


@runtime_checkable
class StatefulData(Protocol):
    """Data that change with training, such as a replay buffer that the model fills by acting. Checkpoints store their
    state, so that a run is resumed with the same data."""

    def start(self, model: nn.Module) -> None: ...  # before the first batch
    def dump_state(self) -> Mapping[str, Tensor]: ...
    def load_state(self, tensors: Mapping[str, Tensor]) -> None: ...


@dataclass
class LossState:
    """What a loss depends on besides model and batch. The learner owns it; checkpoints store what is `carried`."""

    progress: float = 0.0  # the fraction of the training budget that is spent
    # State from batch to batch, such as segment memory. A loss replaces tensors; it must not change them in place.
    carried: Mapping[str, Tensor] = field(default_factory=dict)


class Losses(Protocol):
    """Sums over tokens: `total` to differentiate, `nll` without label smoothing, and the token `count`."""

    @property
    def total(self) -> Tensor: ...
    @property
    def nll(self) -> Tensor: ...
    @property
    def count(self) -> Tensor: ...


class Task(Protocol):
    """A task as the loop sees it: its loss."""

    def init_state(self, model: nn.Module) -> LossState: ...
    def loss(self, model: nn.Module, batch: Any, state: LossState) -> Losses: ...


@runtime_checkable
class HasAfterStep(Protocol):
    """A task with weights that follow others, such as target networks: called after each update of the optimiser."""

    def after_step(self, model: nn.Module, step: int) -> None: ...


@dataclass(frozen=True)
class Metric:
    """The validation score that selects the best checkpoint."""

    name: str = "nll"
    lower: bool = True  # lower is better

    def is_better(self, new: float, old: float) -> bool:
        return new < old if self.lower else new > old


@dataclass
class State:
    """The state of training, stored as a checkpoint's state.json."""

    step: int = 0
    epoch: int = 0
    index: int = 0  # of the next batch in the epoch
    minutes: float = 0.0
    tokens: int = 0
    flops: float = 0.0  # of training on these tokens, where they are counted for a budget
    validated: int = 0  # step of the last validation
    best: dict[str, Any] = field(default_factory=dict)  # name, value, step
    stale: int = 0  # validations since the best one, for early stopping
    skips: int = 0  # skipped updates in a row

    @classmethod
    def from_json(cls, data: Mapping[str, Any], where: str) -> State:
        """The state of a checkpoint; `where` names the run in an error. The types of known keys are checked when the
        checkpoint is read."""
        if unknown := ", ".join(map(repr, sorted(data.keys() - cls.__dataclass_fields__.keys()))):
            raise UserError(f"{where}: the state.json of its checkpoint has unknown keys ({unknown}); train it anew")
        return cls(**data)

    def without_minutes(self) -> dict[str, Any]:
        """The state as a dict without the clock, to compare two states."""
        return {key: value for key, value in asdict(self).items() if key != "minutes"}


@dataclass(frozen=True)
class Result:
    """How training ended. `reason`: steps, epochs, minutes, tokens, flops, patience, or the name of a signal."""

    reason: str
    step: int
    epoch: int
    minutes: float
    best: Mapping[str, Any]

    @property
    def interrupted(self) -> bool:
        return self.reason.startswith("SIG")
