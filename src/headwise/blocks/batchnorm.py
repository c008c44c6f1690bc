"""Batch normalisation beside the linear map that it scales (Ioffe and Szegedy 2015).

In training a channel is normalised by the mean and variance of its batch, in evaluation by running statistics. Then
norm and linear map are one linear map: `fuse_batch_norms` makes a model without batch norms that has the same outputs.

Letters: B rows, T tokens, C channels.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headwise.blocks.feedforward import ActivationFunction, identity

Norm = Callable[[int], nn.Module]
Model = TypeVar("Model", bound=nn.Module)


class TokenNorm(nn.BatchNorm1d):
    """Batch norm over all tokens of a batch: (..., C) -> (..., C). A single vector has no variance, so it uses the
    running statistics in training, too."""

    def forward(self, x: Tensor) -> Tensor:
        flat = x.flatten(0, -2)  # (B, T, C) -> (BT, C)
        if len(flat) > 1:
            return super().forward(flat).view_as(x)
        return F.batch_norm(flat, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps).view_as(x)


class FrozenNorm(nn.Module):
    """Frozen batch norm: statistics and affine parameters are buffers, for pretrained backbones trained further with
    batches too small for statistics (Carion et al. 2020)."""

    weight: Tensor
    bias: Tensor
    running_mean: Tensor
    running_var: Tensor

    def __init__(self, channels: int, eps: float = 1e-5):
        super().__init__()
        self.eps = eps
        for name, value in (("weight", 1.0), ("bias", 0.0), ("running_mean", 0.0), ("running_var", 1.0)):
            self.register_buffer(name, torch.full((channels,), value))

    def forward(self, x: Tensor) -> Tensor:
        return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)


def compute_scale_and_shift(norm: nn.Module) -> tuple[Tensor, Tensor]:
    """A batch norm in evaluation, gain * (x - mean) / sqrt(variance + eps) + bias, as scale * x + shift: 2 x (C,)."""
    tensors = norm.state_dict(keep_vars=True)
    scale = tensors["weight"] * (tensors["running_var"] + norm.eps).rsqrt()
    return scale, tensors["bias"] - tensors["running_mean"] * scale


class Fusable(nn.Module, ABC):
    """A linear map with a batch norm that can be fused."""

    norm: nn.Module

    @abstractmethod
    def fuse(self) -> None:
        """Fold the norm into the weights of the map."""


class ConvNorm(Fusable):
    """Convolution without bias, batch normalisation and activation, act(norm(conv(x))); padded so that a stride of 1
    keeps the size."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int = 3,
        stride: int = 1,
        activation: ActivationFunction = identity,
        norm: Norm = nn.BatchNorm2d,
    ):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
        self.norm = norm(outputs)
        self.activation = activation

    def forward(self, maps: Tensor) -> Tensor:
        return self.activation(self.norm(self.conv(maps)))

    def fuse(self) -> None:
        scale, shift = compute_scale_and_shift(self.norm)
        self.conv.weight = nn.Parameter(self.conv.weight * scale.view(-1, 1, 1, 1))
        self.conv.bias = nn.Parameter(shift)
        self.norm = nn.Identity()


class LinearNorm(Fusable):
    """norm(linear(x)), without the bias that the norm would cancel. At the end of a residual branch the initial `gain`
    is 0, so that the layer is the identity at initialisation (Goyal et al. 2017)."""

    def __init__(self, inputs: int, outputs: int, gain: float = 1.0):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs, bias=False)
        self.norm = TokenNorm(outputs)
        nn.init.constant_(self.norm.weight, gain)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.linear(x))

    def fuse(self) -> None:
        scale, shift = compute_scale_and_shift(self.norm)
        self.linear.weight = nn.Parameter(self.linear.weight * scale.unsqueeze(-1))
        self.linear.bias = nn.Parameter(shift)
        self.norm = nn.Identity()


class NormLinear(Fusable):
    """linear(norm(x)), a classification head."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.norm = TokenNorm(inputs)
        self.linear = nn.Linear(inputs, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self.norm(x))

    def fuse(self) -> None:
        scale, shift = compute_scale_and_shift(self.norm)
        self.linear.bias = nn.Parameter(self.linear(shift))
        self.linear.weight = nn.Parameter(self.linear.weight * scale)
        self.norm = nn.Identity()


def fuse_batch_norms(model: Model) -> Model:
    """A copy for evaluation in which every batch norm is folded into the linear map beside it."""
    model = copy.deepcopy(model).eval()
    with torch.no_grad():
        for module in [module for module in model.modules() if isinstance(module, Fusable)]:
            module.fuse()
    return model
