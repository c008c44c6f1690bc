"""How a model is trained: budget, optimiser, schedule, checkpoints.

Zero switches a setting off throughout, so that a config never holds None.

    >>> config = TrainConfig(steps=100, schedule={"kind": "noam", "width": 512})
    >>> f"{config.schedule.build()(4000, 0.0):.3e}"
    '6.988e-04'
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from pydantic import Field, model_validator

from headwise.config.base import Config, Fraction, NonNegativeFloat, NonNegativeInt, PositiveInt, Problems, Table, slot
from headwise.train.schedules import SCHEDULES, Cosine, ScheduleConfig

if TYPE_CHECKING:
    from headwise.train.optim import OptimizerConfig

OPTIMIZERS = Table(
    "optimizer",
    default="adam",
    place="train.optimizer",
    homes={
        "adam": "headwise.train.optim:AdamConfig",
        "adamw": "headwise.train.optim:AdamWConfig",
        "adafactor": "headwise.train.optim:AdafactorConfig",
    },
)

if TYPE_CHECKING:
    AnyOptimizer: TypeAlias = OptimizerConfig
    AnySchedule: TypeAlias = ScheduleConfig
else:
    AnyOptimizer, AnySchedule = slot(OPTIMIZERS), slot(SCHEDULES)


def _make_adam() -> AnyOptimizer:
    from headwise.train.optim import AdamConfig  # torch is not needed to know the settings of a training

    return AdamConfig()


class TrainConfig(Config):
    """The `[train]` table of an experiment."""

    place = "train"

    # the batch: by tokens, or by examples where batch_size is set
    tokens_per_batch: PositiveInt = 4096
    batch_size: NonNegativeInt = 0
    accumulate: PositiveInt = 1  # gradient accumulation: batches to one update

    # the budget: the first one reached ends the run
    steps: NonNegativeInt = 0
    epochs: NonNegativeInt = 0
    minutes: NonNegativeFloat = 0.0
    tokens: NonNegativeInt = 0  # of the targets, as metrics count them

    optimizer: AnyOptimizer = Field(default_factory=_make_adam)
    schedule: AnySchedule = Cosine()
    label_smoothing: Fraction = 0.1
    clip_norm: NonNegativeFloat = 1.0  # gradient clipping: the largest global norm
    nan: Literal["stop", "skip"] = "stop"  # what to do with an update that is not finite

    log_every: PositiveInt = 50
    validate_every: NonNegativeInt = 0  # steps; 0: after each epoch
    samples: NonNegativeInt = 4  # outputs that are kept at each validation, to look at
    patience: NonNegativeInt = 0  # early stopping: validations without a better score
    checkpoint_every: NonNegativeInt = 0  # steps
    checkpoint_minutes: NonNegativeFloat = 5.0
    keep_checkpoints: PositiveInt = 3  # checkpoints that stay, besides the best one
    average_checkpoints: NonNegativeInt = (
        0  # how many of the last checkpoints `average_checkpoints` weights are the mean of
    )
    ema: Fraction = 0.0  # decay of the exponential moving average of the weights

    precision: Literal["float32", "bfloat16"] = "float32"  # bfloat16: mixed precision (autocast)
    compile: bool = False
    device: str = "auto"
    threads: NonNegativeInt = 0
    tensorboard: bool = False

    @model_validator(mode="after")
    def _some_budget(self) -> TrainConfig:
        if not (self.steps or self.epochs or self.minutes or self.tokens):
            raise Problems([(("steps",), "training needs an end; set steps, epochs or minutes, or tokens")])
        return self

    def for_width(self, width: int) -> TrainConfig:
        """The same with the model's width filled in where the schedule asks for it (noam)."""
        if not width or getattr(self.schedule, "width", True):
            return self
        return self.replace(schedule=self.schedule.replace(width=width))
