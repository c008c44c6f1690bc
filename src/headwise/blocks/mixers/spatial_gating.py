"""The gMLP block (Liu et al. 2021, "Pay Attention to MLPs"): a feed-forward network with a spatial gating unit.

    y = W_2 (u * (W norm(v) + b)),    [u; v] = act(W_1 x)

W is a matrix along the tokens, shared by all channels; a Toeplitz matrix depends on the distance of two tokens alone
(the paper's masked language models). aMLP adds a tiny attention with one head to the gate (section 4.3). The block is a
whole layer: `gmlp` models have no further feed-forward network.

DISCREPANCY: the paper mixes texts and images of one length. A shorter text uses the weights of the first positions
alone, as if zeros followed it.

Letters: B rows, T length, C width, N max_length, S hidden, A attention_width.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from headwise.blocks.feedforward import ACTIVATIONS
from headwise.blocks.norm import LayerNorm
from headwise.blocks.part import BuildContext, PartConfig
from headwise.blocks.residual import make_dropout
from headwise.blocks.stream import Context, Part, Properties, Stream
from headwise.errors import UserError

NEAR_ZERO = 1e-6  # standard deviation of the initial weights: with biases of one, the gate is open (section 2.1)


class SpatialGatingUnit(nn.Module):
    """Spatial gating unit: u * (W norm(v) + b), where u and v are halves of the channels, W (N, N) and b (N) (eqs. 2
    and 4)."""

    def __init__(self, hidden: int, max_length: int, toeplitz: bool = False):
        super().__init__()
        self.max_length, self.toeplitz = max_length, toeplitz
        self.norm = LayerNorm(hidden // 2)
        self.weight = nn.Parameter(torch.empty(2 * max_length - 1) if toeplitz else torch.empty(max_length, max_length))
        self.bias = nn.Parameter(torch.ones(max_length))
        nn.init.normal_(self.weight, std=NEAR_ZERO)

    def forward(self, x: Tensor, keep: Tensor | None = None, attended: Tensor | None = None) -> Tensor:
        """(B, T, S) -> (B, T, S/2). `attended` (B, T, S/2) is added to the gate."""
        length = x.shape[1]
        u, v = x.chunk(2, dim=-1)
        v = self.norm(v)
        if keep is not None:
            v = v.masked_fill(~keep.unsqueeze(-1), 0.0)
        gate = self.get_matrix(length) @ v + self.bias[:length].unsqueeze(-1)  # (T, T) @ (B, T, S/2)
        return u * (gate if attended is None else gate + attended)

    def get_matrix(self, length: int) -> Tensor:
        """The weights of the first `length` tokens, (T, T); of a Toeplitz matrix W_ts = w_{t - s}."""
        if length > self.max_length:
            raise UserError(
                f"mixer: a sequence of {length} tokens does not fit spatial gating over {self.max_length}; "
                "set mixer.max_length higher and train again, or use another mixer"
            )
        if not self.toeplitz:
            return self.weight[:length, :length]
        index = torch.arange(length, device=self.weight.device)
        return self.weight[index.unsqueeze(-1) - index + self.max_length - 1]


class TinyAttention(nn.Module):
    """Tiny attention of aMLP: one softmax head of `width` channels, projected to those of the gate."""

    def __init__(self, inputs: int, width: int, outputs: int, bias: bool = True):
        super().__init__()
        self.qkv = nn.Linear(inputs, 3 * width, bias)
        self.out = nn.Linear(width, outputs, bias)

    def forward(self, x: Tensor, keep: Tensor | None = None) -> Tensor:
        q, k, v = self.qkv(x).unsqueeze(1).chunk(3, dim=-1)  # (B, T, C) -> 3 x (B, 1, T, A)
        mask = None
        if keep is not None:  # a finite number: rows of padding alone give no NaN
            hidden = torch.zeros_like(keep, dtype=q.dtype).masked_fill_(~keep, torch.finfo(q.dtype).min)
            mask = hidden[:, None, None]  # (B, T) -> (B, 1, 1, T)
        return self.out(F.scaled_dot_product_attention(q, k, v, mask).squeeze(1))  # (B, 1, T, A) -> (B, T, S/2)


class GatedMlp(Part):
    """The gMLP block: W_2 sgu(act(W_1 x)), with a spatial gating unit between two linear layers (Liu et al. 2021, eq.
    1). With `attention_width`, aMLP.

    >>> GatedMlp(64, 128, max_length=16)(torch.zeros(2, 10, 64)).shape
    torch.Size([2, 10, 64])
    """

    def __init__(
        self,
        width: int,
        hidden: int,
        max_length: int,
        *,
        toeplitz: bool = False,
        attention_width: int = 0,
        activation: str = "gelu",
        bias: bool = True,
        dropout: float = 0.0,
    ):
        super().__init__()
        if hidden % 2:
            raise UserError(f"hidden: {hidden} channels have no halves to gate with each other; use an even number")
        self.activation = ACTIVATIONS[activation]
        self.inner = nn.Linear(width, hidden, bias)
        self.gating = SpatialGatingUnit(hidden, max_length, toeplitz)
        self.attention = TinyAttention(width, attention_width, hidden // 2, bias) if attention_width else None
        self.outer = nn.Linear(hidden // 2, width, bias)
        self.drop = make_dropout(dropout)

    @property
    def properties(self) -> Properties:
        return Properties(length_free=False)

    def transform(self, stream: Stream, ctx: Context) -> Tensor:
        hidden = self.activation(self.inner(stream.x))  # (B, T, C) -> (B, T, S)
        attended = None if self.attention is None else self.attention(stream.x, stream.keep)
        return self.outer(self.drop(self.gating(hidden, stream.keep, attended)))  # (B, T, S/2) -> (B, T, C)


class GatedMlpConfig(PartConfig):
    """gMLP block over at most `max_length` tokens; `hidden` channels, 0: those of the model's feed-forward network."""

    fixed_length = with_feedforward = True
    kind: Literal["gmlp"] = "gmlp"
    max_length: int = Field(512, ge=1)
    hidden: int = Field(0, ge=0)
    toeplitz: bool = False  # weights depend on the distance of two tokens alone
    attention_width: int = Field(0, ge=0)  # aMLP: channels of the tiny attention; 0: none
    activation: Literal["relu", "gelu", "gelu_tanh", "swish", "elu", "selu", "sigmoid", "softplus", "tanh"] = "gelu"

    def build(self, build_ctx: BuildContext) -> nn.Module:
        build_ctx.refuse_causal(self.kind)
        return GatedMlp(
            build_ctx.width,
            self.hidden or build_ctx.hidden,
            self.max_length,
            toeplitz=self.toeplitz,
            attention_width=self.attention_width,
            activation=self.activation,
            bias=build_ctx.mlp_bias,
            dropout=build_ctx.hidden_dropout,
        )
