"""The `[train]` table: budget, optimiser, schedule, validation, checkpoints. Zero disables a setting.

>>> config = TrainConfig(steps=100, schedule={"kind": "noam", "width": 512})
>>> f"{config.schedule.build()(4000, 0.0):.3e}"
'6.988e-04'
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from pydantic import Field, model_validator

from headwise.config.base import Config, Fraction, NonNegativeFloat, NonNegativeInt, PositiveInt, Problems, Table, slot
from headwise.train.observers import OBSERVERS, ObserverConfig
from headwise.train.parallel.config import AnyParallel, DdpConfig
from headwise.train.schedules import SCHEDULES, Cosine, Schedule, ScheduleConfig, warm_restart

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
    AnyObserver: TypeAlias = ObserverConfig
else:
    AnyOptimizer, AnySchedule, AnyObserver = slot(OPTIMIZERS), slot(SCHEDULES), slot(OBSERVERS)


def _make_adam() -> AnyOptimizer:
    from headwise.train.optim import AdamConfig  # imports torch, which reading a config does not need

    return AdamConfig()


class RestartConfig(Config):
    """Where the current budget began, in a run that is trained longer (`headwise train --resume RUN --minutes 10`).
    The schedule restarts there (`headwise.train.schedules.warm_restart`). Step 0: the beginning."""

    place = "train.restart"

    step: NonNegativeInt = 0
    epoch: NonNegativeInt = 0
    index: NonNegativeInt = 0  # of the next batch in the epoch
    minutes: NonNegativeFloat = 0.0
    tokens: NonNegativeInt = 0
    progress: Annotated[float, Field(ge=0, le=1)] = 0.0  # the fraction of the previous budget that was spent


class TrainConfig(Config):
    """The `[train]` table of an experiment."""

    place = "train"

    # batch size in tokens, or in examples if batch_size is set
    tokens_per_batch: PositiveInt = 4096
    batch_size: NonNegativeInt = 0
    accumulate: PositiveInt = 1  # gradient accumulation: batches per optimiser step

    # budgets: the first one reached ends the run
    steps: NonNegativeInt = 0
    epochs: NonNegativeInt = 0
    minutes: NonNegativeFloat = 0.0
    tokens: NonNegativeInt = 0  # of the targets, as in metrics.jsonl
    flops: NonNegativeFloat = 0.0  # of forward and backward passes, counted per token as `headwise show` counts them
    restart: RestartConfig = RestartConfig()  # written when a run is trained longer

    optimizer: AnyOptimizer = Field(default_factory=_make_adam)
    schedule: AnySchedule = Cosine()
    label_smoothing: Fraction = 0.1
    clip_norm: NonNegativeFloat = 1.0  # gradient clipping: maximum global norm
    nan: Literal["stop", "skip"] = "stop"  # at a non-finite gradient: save and stop, or skip the update

    log_every: PositiveInt = 50
    validate_every: NonNegativeInt = 0  # steps; 0: after each epoch
    samples: NonNegativeInt = 4  # sample outputs logged at each validation
    patience: NonNegativeInt = 0  # early stopping: validations without a better score
    checkpoint_every: NonNegativeInt = 0  # steps
    checkpoint_minutes: NonNegativeFloat = 5.0
    keep_checkpoints: PositiveInt = 3  # checkpoints to keep, besides the best one
    average_checkpoints: NonNegativeInt = 0  # how many checkpoints `--checkpoint average` averages
    ema: Fraction = 0.0  # decay of the exponential moving average of the weights

    precision: Literal["float32", "bfloat16"] = "float32"  # bfloat16: mixed precision (autocast)
    checkpointing: bool = False  # recompute the activations of each layer in the backward pass: less memory, slower
    compile: bool = False
    parallel: AnyParallel = DdpConfig()  # how several processes divide a step: "ddp", or "none" for one alone
    device: str = "auto"
    threads: NonNegativeInt = 0
    observers: tuple[AnyObserver, ...] = ()  # where metrics go besides metrics.jsonl: "tensorboard", "mlflow"

    @model_validator(mode="after")
    def _check_budget(self) -> TrainConfig:
        if not (self.steps or self.epochs or self.minutes or self.tokens or self.flops):
            raise Problems([(("steps",), "training needs an end; set steps, epochs, minutes, tokens or flops")])
        return self

    def build_schedule(self) -> Schedule:
        """The learning-rate schedule, restarted where a finished run is trained longer."""
        return warm_restart(self.schedule, self.restart.step) if self.restart.step else self.schedule.build()

    def for_width(self, width: int) -> TrainConfig:
        """The same with the model's width in the schedule, if it needs one (noam)."""
        if not width or getattr(self.schedule, "width", True):
            return self
        return self.replace(schedule=self.schedule.replace(width=width))
