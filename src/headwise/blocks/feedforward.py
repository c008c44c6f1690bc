"""The position-wise feed-forward network, its activations and the gated family (GLU, Shazeer 2020)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from headwise.blocks.decode_step import Function, Step, calls, to_function
from headwise.blocks.norm import LayerNorm
from headwise.blocks.part import BuildContext, PartConfig
from headwise.blocks.residual import make_dropout
from headwise.blocks.stream import Context, Part, Properties, Stream

ActivationFunction = Callable[[Tensor], Tensor]


def gelu_tanh(x: Tensor) -> Tensor:
    """The tanh form of GELU that GPT-2 and T5 v1.1 use."""
    return F.gelu(x, approximate="tanh")


def identity(x: Tensor) -> Tensor:
    return x


def relu(x: Tensor) -> Tensor:
    """ReLU in place: the output of a linear layer can be overwritten, which saves a pass over memory."""
    return F.relu(x, inplace=True)


ACTIVATIONS: dict[str, ActivationFunction] = {
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


GATED_ACTIVATIONS: dict[str, ActivationFunction] = {  # act(W1 x) * (W2 x)
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
    """The feed-forward network: W_out act(W_in x + b) + b, at every position alone; SwiGLU and other gated linear units
    take act(W1 x) * (W2 x) instead of act(W_in x).

    With `chunk`, only so many tokens are computed at once, with activation checkpointing: the backward pass computes
    their hidden channels again instead of storing them (Kitaev et al. 2020, section 3).
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
        self.gated = activation in GATED_ACTIVATIONS
        self.activation = (GATED_ACTIVATIONS if self.gated else ACTIVATIONS)[activation]
        self.inner = nn.Linear(width, 2 * hidden if self.gated else hidden, bias)
        self.outer = nn.Linear(hidden, width, bias)
        self.drop = make_dropout(dropout)

    @property
    def properties(self) -> Properties:
        return Properties(causal=True, steppable=True, joins=True, ragged=True, packing=True)

    @property
    def input_linear(self) -> nn.Module | None:
        return self.inner

    def transform(self, stream: Stream, ctx: Context) -> Tensor:
        layers = (self.inner, self.drop, self.outer)
        if not self.chunk:
            return self.feed_forward(stream.x, *layers)
        run: Function = self.feed_forward
        if torch.is_grad_enabled():
            run = partial(checkpoint, self.feed_forward, use_reentrant=False)
        chunks = stream.x.split(self.chunk, dim=1)  # (B, T, C) -> (B, chunk, C) each
        return torch.cat([run(chunk, *layers) for chunk in chunks], dim=1)

    @calls("feed_forward")
    def build_decode_step(self, ctx: Context) -> Step:
        inner, drop, outer = to_function(self.inner), to_function(self.drop), to_function(self.outer)
        return lambda x, at: self.feed_forward(x, inner, drop, outer)

    def feed_forward(self, x: Tensor, inner: Function, drop: Function, outer: Function) -> Tensor:
        """The network with these layers: (..., C) -> (..., C)."""
        hidden = inner(x)  # (..., C) -> (..., hidden), twice as wide for gate and value
        if self.gated:
            gate, value = hidden.chunk(2, dim=-1)
            return outer(drop(self.activation(gate) * value))
        return outer(drop(self.activation(hidden)))


class HiddenNormFeedForward(FeedForward):
    """A feed-forward network with a layer norm of its hidden channels: W_out norm(act(W_in x)) (the decoder of the
    Evolved Transformer in tensor2tensor; NormFormer, Shleifer et al. 2021)."""

    def __init__(self, width: int, hidden: int, *settings: Any):
        super().__init__(width, hidden, *settings)
        self.norm = LayerNorm(hidden)

    def feed_forward(self, x: Tensor, inner: Function, drop: Function, outer: Function) -> Tensor:
        return super().feed_forward(x, inner, drop, lambda hidden: outer(self.norm(hidden)))


class GatedLinearUnit(Part):
    """Gated linear unit (GLU) as a part: (W_1 x + b) * sigmoid(W_2 x + c) (Dauphin et al. 2017)."""

    by_token = True

    def __init__(self, width: int, bias: bool = True):
        super().__init__()
        self.inner = nn.Linear(width, 2 * width, bias)  # values, then gates

    @property
    def properties(self) -> Properties:
        return Properties(causal=True, steppable=True, joins=True, ragged=True, packing=True)

    @property
    def input_linear(self) -> nn.Module | None:
        return self.inner

    def transform(self, stream: Stream, ctx: Context) -> Tensor:
        return F.glu(self.inner(stream.x), dim=-1)  # (B, T, C) -> (B, T, 2C) -> (B, T, C)

    def build_decode_step(self, ctx: Context) -> Step:
        inner = to_function(self.inner)
        return lambda x, at: F.glu(inner(x), dim=-1)


class MlpConfig(PartConfig):
    """The feed-forward network: `hidden` channels, or `expand` times the width; 0 leaves it to the model."""

    kind: Literal["mlp"] = "mlp"
    expand: float = Field(0.0, ge=0)
    hidden: int = Field(0, ge=0)
    activation: Activation | Literal[""] = ""
    chunk: int = Field(0, ge=0)  # tokens computed at once, for less memory; 0: all
    hidden_norm: bool = False  # layer norm of the hidden channels

    def build(self, build_ctx: BuildContext) -> nn.Module:
        hidden = self.hidden or round(self.expand * build_ctx.width) or build_ctx.hidden
        activation = self.activation or build_ctx.activation
        network = HiddenNormFeedForward if self.hidden_norm else FeedForward
        return network(build_ctx.width, hidden, activation, build_ctx.mlp_bias, build_ctx.hidden_dropout, self.chunk)


class GatedLinearUnitConfig(PartConfig):
    """A gated linear unit of each token."""

    kind: Literal["glu"] = "glu"

    def build(self, build_ctx: BuildContext) -> nn.Module:
        return GatedLinearUnit(build_ctx.width, build_ctx.mlp_bias)
