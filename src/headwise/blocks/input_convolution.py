"""Convolution over token embeddings beside the first layer: n-gram induced input encoding (nGiE) of DeBERTa v2 (He et
al. 2021), which adds what a token's neighbours say to the outputs of the first layer.

Letters: B rows, T length, C width.
"""

from __future__ import annotations

from pydantic import Field, field_validator
from torch import Tensor, nn

from headwise.blocks.feedforward import ACTIVATIONS, GATED_ACTIVATIONS, Activation
from headwise.blocks.residual import make_dropout
from headwise.blocks.stack import Stack, require_plain
from headwise.blocks.stream import Context, Stream
from headwise.config.base import Config


class InputConvolution(nn.Module):
    """norm(y + act(conv(x))) of the inputs x and the outputs y of a layer; padding counts as zeros."""

    def __init__(self, width: int, kernel: int, groups: int, activation: str, norm: nn.Module, dropout: float = 0.0):
        super().__init__()
        self.conv = nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=groups)
        self.activation = ACTIVATIONS[activation]
        self.drop = make_dropout(dropout)
        self.norm = norm

    def forward(self, inputs: Stream, outputs: Stream) -> Tensor:
        x = inputs.x if inputs.keep is None else inputs.x * inputs.keep.unsqueeze(-1)
        near = self.conv(x.mT).mT[:, : outputs.x.shape[1]]  # (B, T, C) -> (B, C, T) and back
        normed: Tensor = self.norm(outputs.x + self.activation(self.drop(near)))
        return normed


class ConvolutionStack(Stack):
    """A stack with a convolution of its inputs, which is added to the outputs of its first layer."""

    def __init__(self, stack: Stack, convolution: InputConvolution):
        require_plain(stack, "convolution")
        super().__init__(list(stack.layers), stack.final, stack.layer_numbers)
        self.convolution = convolution

    def run_layer(self, index: int, stream: Stream, ctx: Context) -> Stream:
        outputs = super().run_layer(index, stream, ctx)
        return outputs if index else outputs.with_x(self.convolution(stream, outputs))


class InputConvolutionConfig(Config):
    """A convolution of the embeddings of `kernel` tokens, in `groups` of channels; kernel = 0: none."""

    kernel: int = Field(0, ge=0)
    groups: int = Field(1, ge=1)
    activation: Activation = "tanh"

    @field_validator("kernel")
    @classmethod
    def _check_kernel(cls, kernel: int) -> int:
        if kernel and kernel % 2 == 0:
            raise ValueError("must be odd, so that as many tokens come out as go in")
        return kernel

    @field_validator("activation")
    @classmethod
    def _check_activation(cls, activation: str) -> str:
        if activation in GATED_ACTIVATIONS:
            raise ValueError("a convolution has no gate; choose an activation that is not gated")
        return activation

    def add_to(self, stack: Stack, width: int, norm: nn.Module, dropout: float) -> Stack:
        """The stack with this convolution; the same stack where there is none."""
        if not self.kernel:
            return stack
        convolution = InputConvolution(width, self.kernel, self.groups, self.activation, norm, dropout)
        return ConvolutionStack(stack, convolution)
