"""How a model is trained: budget, optimiser, schedule, checkpoints. Plain values, no torch.

Zero switches a setting off throughout, so that a config never holds None.

    >>> config = TrainConfig(steps=100, schedule={"kind": "noam", "width": 512})
    >>> f"{config.schedule.build()(4000, 0.0):.3e}"
    '6.988e-04'
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, model_validator

from headwise.config.base import Config, Problems, Table, slot
from headwise.errors import UserError

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

    from headwise.train.schedules import Rate

Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]
Amount = Annotated[float, Field(ge=0)]
Rising = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(ge=0, lt=1)]

OPTIMIZERS = Table("optimizer", default="adam")
SCHEDULES = Table("schedule", default="cosine")


@OPTIMIZERS.add
class Adam(Config):
    """Adam with the constants of "Attention is all you need", section 5.3."""

    kind: Literal["adam"] = "adam"
    betas: tuple[Share, Share] = (0.9, 0.98)
    eps: Rising = 1e-9

    def build(self, model: nn.Module) -> Optimizer:
        from headwise.train.optim import adam

        return adam(model, self.betas, self.eps)


@OPTIMIZERS.add
class AdamW(Config):
    """Adam with decoupled weight decay; biases and norms are never decayed."""

    kind: Literal["adamw"] = "adamw"
    betas: tuple[Share, Share] = (0.9, 0.98)
    eps: Rising = 1e-9
    weight_decay: Amount = 0.01
    decay_embeddings: bool = False

    def build(self, model: nn.Module) -> Optimizer:
        from headwise.train.optim import adam

        return adam(model, self.betas, self.eps, self.weight_decay, self.decay_embeddings)


@SCHEDULES.add
class Noam(Config):
    """width^-0.5 · min(step^-0.5, step · warmup^-1.5), equation 3 of "Attention is all you need"."""

    kind: Literal["noam"] = "noam"
    warmup: Positive = 4000
    factor: Rising = 1.0
    width: Count = 0  # 0: the model's, see TrainConfig.for_width

    def build(self) -> Rate:
        from headwise.train.schedules import noam

        if not self.width:
            raise UserError("train.schedule.width: noam needs the model's width; set it, or take cosine")
        return noam(self.width, self.warmup, self.factor)


@SCHEDULES.add
class Cosine(Config):
    """Half a cosine from `lr` down to `floor · lr` over the whole budget."""

    kind: Literal["cosine"] = "cosine"
    lr: Rising = 1e-3
    warmup: Count = 100
    floor: Annotated[float, Field(ge=0, le=1)] = 0.0

    def build(self) -> Rate:
        from headwise.train.schedules import cosine

        return cosine(self.lr, self.warmup, self.floor)


@SCHEDULES.add
class Linear(Config):
    """A straight line from `lr` down to `floor · lr` over the whole budget."""

    kind: Literal["linear"] = "linear"
    lr: Rising = 1e-3
    warmup: Count = 100
    floor: Annotated[float, Field(ge=0, le=1)] = 0.0

    def build(self) -> Rate:
        from headwise.train.schedules import linear

        return linear(self.lr, self.warmup, self.floor)


@SCHEDULES.add
class InverseSqrt(Config):
    """Up to `lr` at `warmup`, then `lr · (warmup / step)^0.5`: Noam with its peak named."""

    kind: Literal["inverse_sqrt"] = "inverse_sqrt"
    lr: Rising = 1e-3
    warmup: Positive = 4000

    def build(self) -> Rate:
        from headwise.train.schedules import inverse_sqrt

        return inverse_sqrt(self.lr, self.warmup)


@SCHEDULES.add
class Constant(Config):
    """`lr` throughout, after an optional warm-up."""

    kind: Literal["constant"] = "constant"
    lr: Rising = 1e-3
    warmup: Count = 0

    def build(self) -> Rate:
        from headwise.train.schedules import constant

        return constant(self.lr, self.warmup)


class TrainConfig(Config):
    """The `[train]` table of an experiment."""

    # the batch: by tokens, or by examples where batch_size is set
    tokens_per_batch: Positive = 4096
    batch_size: Count = 0
    accumulate: Positive = 1  # batches to one update

    # the budget: the first one reached ends the run
    steps: Count = 0
    epochs: Count = 0
    minutes: Amount = 0.0
    tokens: Count = 0  # of the targets, as metrics count them

    optimizer: slot(OPTIMIZERS) = Adam()  # type: ignore[valid-type]
    schedule: slot(SCHEDULES) = Cosine()  # type: ignore[valid-type]
    smoothing: Share = 0.1
    clip: Amount = 1.0  # the largest gradient norm
    nan: Literal["stop", "skip"] = "stop"  # what to do with an update that is not finite

    log_every: Positive = 50
    validate_every: Count = 0  # steps; 0: after each epoch
    samples: Count = 4  # outputs that are kept at each validation, to look at
    patience: Count = 0  # validations without a better score before stopping
    checkpoint_every: Count = 0  # steps
    checkpoint_minutes: Amount = 5.0
    keep: Positive = 3  # checkpoints that stay, besides the best one
    average: Count = 0  # how many of the last checkpoints `average` weights are the mean of
    ema: Share = 0.0  # decay of the moving average of the weights

    precision: Literal["float32", "bfloat16"] = "float32"
    compile: bool = False
    device: str = "auto"
    threads: Count = 0
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
        return self.changed(schedule=self.schedule.changed(width=width))
