"""Token mixing of MLP-Mixer (Tolstikhin et al. 2021, "MLP-Mixer: An all-MLP Architecture for Vision").

DISCREPANCY: the paper mixes images of one size. A shorter text uses the weights of the first positions alone, as if
zeros followed it.

Letters: B rows, T length, C width, N max_length, S hidden.
"""

from __future__ import annotations

from typing import Literal

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from headwise.blocks.feedforward import ACTIVATIONS
from headwise.blocks.part import BuildContext, PartConfig
from headwise.blocks.residual import make_dropout
from headwise.blocks.stream import Context, Part, Properties, Stream
from headwise.errors import UserError


class TokenMixing(Part):
    """Token mixing: an MLP W_2 act(W_1 x) along the tokens, shared by all channels; W_1 (S, N), W_2 (N, S) (eq. 1)."""

    def __init__(self, max_length: int, hidden: int, activation: str = "gelu", bias: bool = True, dropout: float = 0.0):
        super().__init__()
        self.max_length = max_length
        self.activation = ACTIVATIONS[activation]
        self.inner = nn.Linear(max_length, hidden, bias)
        self.outer = nn.Linear(hidden, max_length, bias)
        self.drop = make_dropout(dropout)

    @property
    def properties(self) -> Properties:
        return Properties(length_free=False)

    def transform(self, stream: Stream, ctx: Context) -> Tensor:
        length = stream.x.shape[1]
        if length > self.max_length:
            raise UserError(
                f"mixer: a sequence of {length} tokens does not fit token mixing over {self.max_length}; "
                "shorten it, or train with a higher mixer.max_length or another mixer"
            )
        x = stream.x if stream.keep is None else stream.x.masked_fill(~stream.keep.unsqueeze(-1), 0.0)
        bias = self.outer.bias if self.outer.bias is None else self.outer.bias[:length]
        hidden = F.linear(x.mT, self.inner.weight[:, :length], self.inner.bias)  # (B, T, C) -> (B, C, T) -> (B, C, S)
        mixed = F.linear(self.drop(self.activation(hidden)), self.outer.weight[:length], bias)
        return mixed.mT  # (B, C, T) -> (B, T, C)


class TokensConfig(PartConfig):
    """Token-mixing MLP over at most `max_length` tokens; `hidden` channels, 0: half the width, as in the paper."""

    fixed_length = True
    kind: Literal["tokens"] = "tokens"
    max_length: int = Field(512, ge=1)
    hidden: int = Field(0, ge=0)
    activation: Literal["relu", "gelu", "gelu_tanh", "swish", "elu", "selu", "sigmoid", "softplus", "tanh"] = "gelu"

    def build(self, build_ctx: BuildContext) -> nn.Module:
        build_ctx.refuse_causal(self.kind)
        hidden = self.hidden or max(1, build_ctx.width // 2)
        return TokenMixing(self.max_length, hidden, self.activation, build_ctx.mlp_bias, build_ctx.hidden_dropout)
