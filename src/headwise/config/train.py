"""How a model is trained: budget, optimiser, schedule, checkpoints. Plain values, no torch.

Zero switches a setting off throughout, so that a config never holds None.

    >>> config = TrainConfig(steps=100, schedule={"kind": "noam", "width": 512})
    >>> f"{config.schedule.build()(4000, 0.0):.3e}"
    '6.988e-04'
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, model_validator

from headwise.config.base import Amount, Config, Count, Positive, Problems, Rising, Share, Table, slot
from headwise.train.schedules import SCHEDULES, Cosine

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

OPTIMIZERS = Table("optimizer", default="adam", place="train.optimizer")


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


@OPTIMIZERS.add
class Adafactor(Config):
    """Adafactor (Shazeer & Stern 2018): factored second moments, n + m numbers for a matrix of n x m weights.

    The rate is the schedule's (`relative_step` is the paper's own), times the root mean square of each weight with
    `scale_parameter`. The update of each weight is clipped to a root mean square of `clip_threshold`.
    """

    kind: Literal["adafactor"] = "adafactor"
    eps: tuple[Annotated[float, Field(ge=1e-30)], Rising] = (1e-30, 1e-3)  # of squared gradients, of weights
    clip_threshold: Rising = 1.0
    decay_rate: Annotated[float, Field(lt=0)] = -0.8
    beta1: Share = 0.0  # 0: no first moment
    scale_parameter: bool = True
    weight_decay: Amount = 0.0
    decay_embeddings: bool = False

    def build(self, model: nn.Module) -> Optimizer:
        from headwise.train.optim import adafactor

        return adafactor(model, **self.model_dump(exclude={"kind"}))


class TrainConfig(Config):
    """The `[train]` table of an experiment."""

    place = "train"

    # the batch: by tokens, or by examples where batch_size is set
    tokens_per_batch: Positive = 4096
    batch_size: Count = 0
    accumulate: Positive = 1  # gradient accumulation: batches to one update

    # the budget: the first one reached ends the run
    steps: Count = 0
    epochs: Count = 0
    minutes: Amount = 0.0
    tokens: Count = 0  # of the targets, as metrics count them

    optimizer: slot(OPTIMIZERS) = Adam()  # type: ignore[valid-type]
    schedule: slot(SCHEDULES) = Cosine()  # type: ignore[valid-type]
    label_smoothing: Share = 0.1
    clip_norm: Amount = 1.0  # gradient clipping: the largest global norm
    nan: Literal["stop", "skip"] = "stop"  # what to do with an update that is not finite

    log_every: Positive = 50
    validate_every: Count = 0  # steps; 0: after each epoch
    samples: Count = 4  # outputs that are kept at each validation, to look at
    patience: Count = 0  # early stopping: validations without a better score
    checkpoint_every: Count = 0  # steps
    checkpoint_minutes: Amount = 5.0
    keep_checkpoints: Positive = 3  # checkpoints that stay, besides the best one
    average_checkpoints: Count = 0  # how many of the last checkpoints `average_checkpoints` weights are the mean of
    ema: Share = 0.0  # decay of the exponential moving average of the weights

    precision: Literal["float32", "bfloat16"] = "float32"  # bfloat16: mixed precision (autocast)
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
