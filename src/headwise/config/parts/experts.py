"""Experts in the place of the feed-forward network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, field_validator, model_validator

from headwise.config.parts.site import PARTS, Activation, BuildContext, PartConfig

if TYPE_CHECKING:
    from torch import nn


@PARTS.add
class ExpertsConfig(PartConfig):
    """Each token is sent to `top_k` of `count` feed-forward networks. 0 leaves a number to the model."""

    kind: Literal["experts"] = "experts"
    count: int = Field(8, ge=1)
    top_k: int = Field(1, ge=1)
    hidden: int = Field(0, ge=0)
    activation: Activation | Literal[""] = ""
    dropout: float = Field(0.0, ge=0, lt=1)  # inside the experts: 0.4 where a large model learns a small task
    normalise: bool | Literal["auto"] = "auto"  # gates over those of the chosen; auto: where there are several
    capacity_factor: float = 1.25  # places of an expert, in even shares of the tokens, while training
    eval_capacity_factor: float = 2.0
    drop: bool = True  # tokens beyond the capacity; false: every expert serves all that come
    balance_loss: float = Field(0.01, ge=0)  # weight of the loss on uneven loads
    z_loss: float = Field(0.0, ge=0)  # weight of the loss on large logits
    jitter: float = Field(0.01, ge=0, lt=1)  # of the router's inputs while training

    @field_validator("capacity_factor", "eval_capacity_factor")
    @classmethod
    def _some_place(cls, factor: float) -> float:
        if factor < 0.001:
            raise ValueError("a factor that leaves no expert a place; 1.25 is usual, and drop = false sets no limit")
        return factor

    @model_validator(mode="after")
    def _enough(self) -> Self:
        if self.top_k > self.count:
            raise ValueError(f"{self.top_k} experts cannot be chosen among {self.count}; lower choose")
        return self

    def build(self, site: BuildContext) -> nn.Module:
        from headwise.blocks.experts import Experts, Router

        normalise = self.top_k > 1 if self.normalise == "auto" else self.normalise
        router = Router(site.width, self.count, self.top_k, normalise, self.jitter, self.balance_loss, self.z_loss)
        return Experts(
            router,
            self.hidden or site.hidden,
            (self.capacity_factor, self.eval_capacity_factor) if self.drop else None,
            self.activation or site.activation,
            site.mlp_bias,
            self.dropout or site.hidden_dropout,
        )
