"""Convolutions of the Evolved Transformer (So et al. 2019, "The Evolved Transformer", figure 3), as parts:

    separable_conv    W (depthwise convolution of x) + b
    conv_branches     conv'(norm(f_1(x) + f_2(x) + ...)), branches and conv' of different widths

In the published encoder f_1 is a dense layer to 4 C channels and f_2 a convolution of 3 tokens to C / 2, both with
ReLU, and conv' a separable convolution of 9 tokens to C / 2. In the decoder f_1 is a separable convolution of 11 tokens
to 2 C with ReLU, f_2 one of 7 tokens to C / 2, conv' one of 7 tokens to C. Narrow outputs are padded with zero
channels. The reference implementations are those of tensor2tensor and mesh-tensorflow.

Letters: B rows, T length, C width, K taps of a kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import add
from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor, nn

from headwise.blocks.feedforward import ACTIVATIONS
from headwise.blocks.norm import LayerNorm
from headwise.blocks.part import BuildContext, PartConfig
from headwise.blocks.residual import make_dropout
from headwise.blocks.stream import Context, Part, Properties, Stream
from headwise.blocks.token_convolution import (
    build_segment_mask,
    check_kernel,
    convolve_depthwise,
    extend_with_neighbours,
    get_convolution_properties,
)
from headwise.config.base import Config
from headwise.errors import UserError

BranchActivation = Literal[
    "identity", "relu", "gelu", "gelu_tanh", "swish", "elu", "selu", "sigmoid", "softplus", "tanh"
]


class TokenConvolution(nn.Module):
    """A convolution along the tokens, act(sum_k W_k x_{t + k d - offset} + b): (B, T, C) -> (B, T, outputs), with a
    dilation of d tokens; with a kernel of one token, a dense layer. `linear` has the taps side by side in its inputs;
    without it, it is an nn.Linear."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int,
        *,
        causal: bool,
        activation: str = "identity",
        bias: bool = True,
        dilation: int = 1,
        linear: nn.Module | None = None,
    ):
        super().__init__()
        self.kernel, self.causal, self.dilation, self.activation = kernel, causal, dilation, ACTIVATIONS[activation]
        # columns: the channels of the first tap, then the next
        self.linear = linear if linear is not None else nn.Linear(kernel * inputs, outputs, bias)

    def forward(self, stream: Stream, ctx: Context) -> Tensor:
        return self.activation(self.linear(self.gather_windows(stream, ctx)))

    def gather_windows(self, stream: Stream, ctx: Context) -> Tensor:
        """The tokens of each window, side by side in channels: (B, T, C) -> (B, T, KC)."""
        if self.kernel == 1:
            return stream.x
        span, length = 1 + (self.kernel - 1) * self.dilation, stream.x.shape[1]
        extended = extend_with_neighbours(stream.x, span, self.causal, stream, ctx)
        starts = range(0, span, self.dilation)
        taps = [extended[:, start : start + length] for start in starts]  # K x (B, T, C)
        if stream.segment is not None:
            mask = build_segment_mask(stream.segment, span, self.causal)  # (B, T, span)
            taps = [tap * mask[..., start : start + 1] for tap, start in zip(taps, starts, strict=True)]
        return torch.cat(taps, dim=-1)


class SeparableTokenConvolution(nn.Module):
    """A separable convolution along the tokens: a depthwise convolution, then a dense layer, act(W conv(x) + b)."""

    def __init__(
        self, inputs: int, outputs: int, kernel: int, *, causal: bool, activation: str = "identity", bias: bool = True
    ):
        super().__init__()
        self.causal, self.activation = causal, ACTIVATIONS[activation]
        self.weight = nn.Parameter(torch.empty(inputs, kernel).uniform_(-(kernel**-0.5), kernel**-0.5))
        self.linear = nn.Linear(inputs, outputs, bias)

    def forward(self, stream: Stream, ctx: Context) -> Tensor:
        return self.activation(self.linear(convolve_depthwise(stream.x, self.weight, self.causal, stream, ctx)))


class SeparableConvolution(Part):
    """Separable convolution as a part: y = W conv(x) + b, conv depthwise.

    >>> SeparableConvolution(64, 7)(torch.zeros(2, 10, 64)).shape
    torch.Size([2, 10, 64])
    """

    def __init__(self, width: int, kernel: int, causal: bool = False, activation: str = "identity", bias: bool = True):
        super().__init__()
        self.causal = causal
        self.convolution = SeparableTokenConvolution(
            width, width, kernel, causal=causal, activation=activation, bias=bias
        )

    @property
    def properties(self) -> Properties:
        return get_convolution_properties(self.causal)

    def transform(self, stream: Stream, ctx: Context) -> Tensor:
        return self.convolution(stream, ctx)


class ConvolutionBranches(Part):
    """Convolution branches of the Evolved Transformer: y = conv'(norm(f_1(x) + f_2(x) + ...)), outputs padded with zero
    channels to the widest branch, and to the width."""

    def __init__(
        self,
        width: int,
        branches: Sequence[nn.Module],
        out: nn.Module,
        hidden: int,
        causal: bool = False,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.width, self.hidden, self.causal = width, hidden, causal
        self.branches = nn.ModuleList(branches)
        self.drop = make_dropout(dropout)
        self.norm = LayerNorm(hidden)
        self.out = out

    @property
    def properties(self) -> Properties:
        return get_convolution_properties(self.causal)

    def transform(self, stream: Stream, ctx: Context) -> Tensor:
        outputs = [self.drop(branch(stream, ctx.at(number))) for number, branch in enumerate(self.branches)]
        hidden = reduce(add, [pad_channels(x, self.hidden) for x in outputs])
        return pad_channels(self.out(stream.with_x(self.norm(hidden)), ctx.at("out")), self.width)


def pad_channels(x: Tensor, width: int) -> Tensor:
    """Pad with zero channels: (B, T, C) -> (B, T, width)."""
    return F.pad(x, (0, width - x.shape[-1])) if x.shape[-1] < width else x


class BranchConfig(Config):
    """One convolution: `kernel` tokens to `expand` times the width."""

    kernel: int = Field(1, ge=1)
    expand: float = Field(1.0, gt=0)
    separable: bool = False
    activation: BranchActivation = "identity"

    def count_channels(self, width: int) -> int:
        return max(1, int(self.expand * width))

    def build(self, inputs: int, width: int, build_ctx: BuildContext, kind: str) -> nn.Module:
        """The convolution of `inputs` channels in a model of `width`."""
        check_kernel(self.kernel, build_ctx.causal, kind)
        convolution = SeparableTokenConvolution if self.separable else TokenConvolution
        return convolution(
            inputs,
            self.count_channels(width),
            self.kernel,
            causal=build_ctx.causal,
            activation=self.activation,
            bias=build_ctx.mlp_bias,
        )


ENCODER_BRANCHES = (
    BranchConfig(kernel=1, expand=4, activation="relu"),
    BranchConfig(kernel=3, expand=0.5, activation="relu"),
)
ENCODER_OUT = BranchConfig(kernel=9, expand=0.5, separable=True)
DECODER_BRANCHES = (
    BranchConfig(kernel=11, expand=2, separable=True, activation="relu"),
    BranchConfig(kernel=7, expand=0.5, separable=True),
)
DECODER_OUT = BranchConfig(kernel=7, separable=True)


class ConvolutionBranchesConfig(PartConfig):
    """Convolution branches, their sum, a norm and a convolution. By default those of the Evolved Transformer's encoder
    or, in a decoder, of its decoder."""

    kind: Literal["conv_branches"] = "conv_branches"
    branches: tuple[BranchConfig, ...] = ()
    out: BranchConfig | Literal[""] = ""  # TOML has no null

    @model_validator(mode="after")
    def _check(self) -> ConvolutionBranchesConfig:
        if bool(self.branches) != bool(self.out):
            raise ValueError("`branches` and `out` belong together; set both or leave both out")
        if self.out and all(branch.kernel == 1 for branch in (*self.branches, self.out)):
            raise ValueError("kernels of one token mix no tokens; use 'mlp', or a longer kernel")
        return self

    def build(self, build_ctx: BuildContext) -> nn.Module:
        width, causal = build_ctx.width, build_ctx.causal
        branches = self.branches or (DECODER_BRANCHES if causal else ENCODER_BRANCHES)
        out = self.out or (DECODER_OUT if causal else ENCODER_OUT)
        if out.count_channels(width) > width:
            raise UserError(f"{self.kind}: out.expand = {out.expand:g} exceeds the width of the model; use at most 1")
        hidden = max(branch.count_channels(width) for branch in branches)
        return ConvolutionBranches(
            width,
            [branch.build(width, width, build_ctx, self.kind) for branch in branches],
            out.build(hidden, width, build_ctx, self.kind),
            hidden,
            causal,
            build_ctx.hidden_dropout,
        )


class SeparableConvolutionConfig(PartConfig):
    """Separable convolution of `kernel` tokens: depthwise, then a dense layer."""

    kind: Literal["separable_conv"] = "separable_conv"
    kernel: int = Field(9, ge=2)
    activation: BranchActivation = "identity"

    def build(self, build_ctx: BuildContext) -> nn.Module:
        check_kernel(self.kernel, build_ctx.causal, self.kind)
        return SeparableConvolution(build_ctx.width, self.kernel, build_ctx.causal, self.activation, build_ctx.mlp_bias)
