"""Lightweight and dynamic convolution (Wu et al. 2019, "Pay Less Attention with Lightweight and Dynamic Convolutions").

    u = (W_1 x) * sigmoid(W_2 x)
    y_t = W_o sum_k softmax(w)_k u_{t + k - offset}

A kernel w has K taps and its softmax sums to one over them. R = C / H neighbouring channels share a kernel. It is a
learned constant (lightweight), or a linear map of the current token, w_t = W u_t (dynamic). The reference
implementation is fairseq's `LightweightConv` and `DynamicConv`, with the gated linear unit before and the output
projection after them.

Narang et al. (2021) ran another form: `per_channel`, since their code never passes the number of shared kernels on, and
`pointwise`, a further linear layer between the convolution and the output projection.

Letters: B rows, T length, C width, H kernels, K taps of a kernel.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from headwise.blocks.part import BuildContext, PartConfig
from headwise.blocks.residual import make_dropout
from headwise.blocks.stream import Context, Part, Properties, Stream
from headwise.blocks.token_convolution import check_kernel, convolve_depthwise, get_convolution_properties
from headwise.errors import UserError


class LightweightConvolution(Part):
    """Lightweight convolution: y = W_o conv(glu(W x)), a depthwise convolution with softmax-normalised kernels.

    `weight_dropout` is DropConnect: taps of the kernels are dropped in training.

    >>> LightweightConvolution(64, heads=4, kernel=3)(torch.zeros(2, 10, 64)).shape
    torch.Size([2, 10, 64])
    """

    def __init__(
        self,
        width: int,
        heads: int = 8,
        kernel: int = 9,
        *,
        causal: bool = False,
        bias: bool = True,
        pointwise: bool = False,
        weight_dropout: float = 0.0,
    ):
        super().__init__()
        self.heads, self.kernel, self.causal = heads, kernel, causal
        self.inner = nn.Linear(width, 2 * width, bias)  # values, then gates
        self.drop = make_dropout(weight_dropout)
        self.pointwise = nn.Linear(width, width, bias) if pointwise else nn.Identity()
        self.out = nn.Linear(width, width, bias)
        self.build_kernels(width)

    def build_kernels(self, width: int) -> None:
        """Create the parameters of the kernels."""
        self.weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(self.heads, 1, self.kernel)).squeeze(1))

    @property
    def properties(self) -> Properties:
        return get_convolution_properties(self.causal)

    @property
    def input_linear(self) -> nn.Module | None:
        return self.inner

    def transform(self, stream: Stream, ctx: Context) -> Tensor:
        x = F.glu(self.inner(stream.x), dim=-1)  # (B, T, C) -> (B, T, 2C) -> (B, T, C)
        kernels = self.drop(self.compute_kernels(x).softmax(-1))
        return self.out(self.pointwise(convolve_depthwise(x, kernels, self.causal, stream, ctx)))

    def compute_kernels(self, x: Tensor) -> Tensor:
        """The kernels before their softmax, (H, K) or (B, T, H, K)."""
        return self.weight


class DynamicConvolution(LightweightConvolution):
    """Dynamic convolution: a lightweight convolution whose kernels are a linear map of the current token."""

    def build_kernels(self, width: int) -> None:
        self.weight_linear = nn.Linear(width, self.heads * self.kernel, bias=False)

    def compute_kernels(self, x: Tensor) -> Tensor:
        return self.weight_linear(x).unflatten(-1, (self.heads, self.kernel))  # (B, T, C) -> (B, T, H, K)


class SoftmaxKernelConfig(PartConfig):
    """Settings of convolutions whose kernels of `kernel` tokens are normalised by a softmax."""

    kernel: int = Field(9, ge=2)
    heads: int = Field(0, ge=0)  # number of kernels, each shared by neighbouring channels; 0: the model's heads
    per_channel: bool = False  # a kernel for each channel instead, as in the code of Narang et al. (2021)
    pointwise: bool = False  # a further linear layer after the convolution, as in the same code
    weight_dropout: float = Field(0.0, ge=0, lt=1)  # DropConnect: rate of dropped taps

    def resolve_arguments(self, build_ctx: BuildContext) -> dict[str, Any]:
        """The arguments of the module for a build context."""
        check_kernel(self.kernel, build_ctx.causal, self.kind)
        heads = build_ctx.width if self.per_channel else self.heads or build_ctx.heads
        if build_ctx.width % heads:
            raise UserError(
                f"heads: a width of {build_ctx.width} cannot be divided among {heads} kernels; use a divisor"
            )
        return {
            "width": build_ctx.width,
            "heads": heads,
            "kernel": self.kernel,
            "causal": build_ctx.causal,
            "bias": build_ctx.attention_bias,
            "pointwise": self.pointwise,
            "weight_dropout": self.weight_dropout,
        }


class LightweightConvolutionConfig(SoftmaxKernelConfig):
    """Lightweight convolution (Wu et al. 2019): learned constant kernels."""

    kind: Literal["lightweight_conv"] = "lightweight_conv"

    def build(self, build_ctx: BuildContext) -> nn.Module:
        return LightweightConvolution(**self.resolve_arguments(build_ctx))


class DynamicConvolutionConfig(SoftmaxKernelConfig):
    """Dynamic convolution (Wu et al. 2019): kernels that are a linear map of the current token."""

    kind: Literal["dynamic_conv"] = "dynamic_conv"

    def build(self, build_ctx: BuildContext) -> nn.Module:
        return DynamicConvolution(**self.resolve_arguments(build_ctx))
