"""The position-wise feed-forward network, its activations and the gated family (GLU, Shazeer 2020)."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from headwise.blocks.dropout import make_dropout
from headwise.blocks.part import Part, Properties
from headwise.blocks.stream import Context, Stream

Activation = Callable[[Tensor], Tensor]


def gelu_tanh(x: Tensor) -> Tensor:
    """The tanh form of GELU that GPT-2 and T5 v1.1 use."""
    return F.gelu(x, approximate="tanh")


def identity(x: Tensor) -> Tensor:
    return x


def relu(x: Tensor) -> Tensor:
    """max(x, 0), in place: what a linear map has just made is ours to overwrite, and a pass over memory is saved."""
    return F.relu(x, inplace=True)


PLAIN: dict[str, Activation] = {
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
GATED: dict[str, Activation] = {  # act(W1 x) * (W2 x)
    "glu": torch.sigmoid,
    "geglu": F.gelu,
    "geglu_tanh": gelu_tanh,
    "reglu": F.relu,
    "swiglu": F.silu,
    "liglu": identity,
}


class FeedForward(Part):
    """W_out act(W_in x + b) + b, at every position alone; gated kinds take act(W1 x) * (W2 x) instead.

    With `chunk`, so many tokens are worked on at once and their hidden channels are not kept: for the gradient they are
    computed again, so that there is never more of them (Kitaev et al. 2020, section 3).
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
        return Properties(causal=True, steppable=True)

    def transform(self, stream: Stream, ctx: Context) -> Tensor:
        if not self.chunk:
            return self.work(stream.x)
        parts = stream.x.split(self.chunk, dim=1)  # (B, T, C) -> (B, chunk, C) each
        if torch.is_grad_enabled():
            return torch.cat([checkpoint(self.work, part, use_reentrant=False) for part in parts], dim=1)
        return torch.cat([self.work(part) for part in parts], dim=1)

    def work(self, x: Tensor) -> Tensor:
        hidden = self.inner(x)
        if self.gated:
            gate, value = hidden.chunk(2, dim=-1)
            return self.outer(self.drop(self.activation(gate) * value))
        return self.outer(self.drop(self.activation(hidden)))
