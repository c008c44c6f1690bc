"""The position-wise feed-forward network, its activations and the gated family (GLU, Shazeer 2020)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from headwise.blocks.part import BuildContext, PartConfig
from headwise.blocks.residual import make_dropout
from headwise.blocks.step import Function, Step, calls, inline
from headwise.blocks.stream import Context, Part, Properties, Stream

ActivationFunction = Callable[[Tensor], Tensor]


def gelu_tanh(x: Tensor) -> Tensor:
    """The tanh form of GELU that GPT-2 and T5 v1.1 use."""
    return F.gelu(x, approximate="tanh")


def identity(x: Tensor) -> Tensor:
    return x


def relu(x: Tensor) -> Tensor:
    """max(x, 0), in place: what a linear map has just made is ours to overwrite, and a pass over memory is saved."""
    return F.relu(x, inplace=True)


PLAIN: dict[str, ActivationFunction] = {
    "relu": relu,
    "gelu": F.gelu,
    "gelu_tanh": gelu_tanh,
    "swish": F.silu,
    "elu": F.elu,
    "selu": F.selu,
    "sigmoid": torch.sigmoid,
    "softplus": F.softplus,
    "tanh": torch.tanh,
    "identity": identity,
}


GATED: dict[str, ActivationFunction] = {  # act(W1 x) * (W2 x)
    "glu": torch.sigmoid,
    "geglu": F.gelu,
    "geglu_tanh": gelu_tanh,
    "reglu": F.relu,
    "swiglu": F.silu,
    "liglu": identity,
}


Activation = Literal[
    "relu", "gelu", "gelu_tanh", "swish", "elu", "selu", "sigmoid", "softplus", "tanh", "identity",
    "glu", "geglu", "geglu_tanh", "reglu", "swiglu", "liglu",
]  # fmt: skip


class FeedForward(Part):
    """The feed-forward network: W_out act(W_in x + b) + b, at every position alone; gated kinds take act(W1 x) * (W2 x)
    instead.

    With `chunk`, so many tokens are worked on at once with activation checkpointing: their hidden channels are computed
    again for the gradient, so that there is never more of them (Kitaev et al. 2020, section 3).
    """

    by_token = True

    def __init__(
        self,
        width: int,
        hidden: int,
        activation: str = "relu",
        bias: bool = True,
        dropout: float = 0.0,
        chunk: int = 0,
    ):
        super().__init__()
        self.chunk = chunk
        self.gated = activation in GATED
        self.activation = (GATED if self.gated else PLAIN)[activation]
        self.inner = nn.Linear(width, 2 * hidden if self.gated else hidden, bias)
        self.outer = nn.Linear(hidden, width, bias)
        self.drop = make_dropout(dropout)

    @property
    def properties(self) -> Properties:
        return Properties(causal=True, steppable=True, joins=True, ragged=True, packing=True)

    def transform(self, stream: Stream, ctx: Context) -> Tensor:
        layers = (self.inner, self.drop, self.outer)
        if not self.chunk:
            return self.feed_forward(stream.x, *layers)
        parts = stream.x.split(self.chunk, dim=1)  # (B, T, C) -> (B, chunk, C) each
        if torch.is_grad_enabled():
            run = partial(checkpoint, self.feed_forward, use_reentrant=False)
            return torch.cat([run(part, *layers) for part in parts], dim=1)
        return torch.cat([self.feed_forward(part, *layers) for part in parts], dim=1)

    @calls("feed_forward")
    def stepper(self, ctx: Context) -> Step:
        inner, drop, outer = inline(self.inner), inline(self.drop), inline(self.outer)
        return lambda x, at: self.feed_forward(x, inner, drop, outer)

    def feed_forward(self, x: Tensor, inner: Function, drop: Function, outer: Function) -> Tensor:
        """(..., C) -> (..., C)."""
        hidden = inner(x)
        if self.gated:
            gate, value = hidden.chunk(2, dim=-1)
            return outer(drop(self.activation(gate) * value))
        return outer(drop(self.activation(hidden)))


class MlpConfig(PartConfig):
    """The feed-forward network: `hidden` channels, or `expand` times the width; 0 leaves it to the model."""

    kind: Literal["mlp"] = "mlp"
    expand: float = Field(0.0, ge=0)
    hidden: int = Field(0, ge=0)
    activation: Activation | Literal[""] = ""
    chunk: int = Field(0, ge=0)  # tokens at once, for less memory; 0: all

    def build(self, site: BuildContext) -> nn.Module:
        hidden = self.hidden or round(self.expand * site.width) or site.hidden
        activation = self.activation or site.activation
        return FeedForward(site.width, hidden, activation, site.mlp_bias, site.hidden_dropout, self.chunk)
