"""Layer normalisation and RMSNorm over the width."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn

from headwise.blocks.decode_step import Function, FunctionStep
from headwise.config.base import Config, describe_config
from headwise.errors import UserError


class ScalableNorm(nn.Module, FunctionStep):
    """A norm whose output is linear in its parameters, so that they can take up a factor of the output."""

    @torch.no_grad()
    def scale_output(self, scale: Tensor) -> None:
        """Multiply the output by `scale` (C,), in the parameters."""
        for parameter in self.parameters():
            parameter.mul_(scale)


class LayerNorm(nn.LayerNorm, ScalableNorm):
    """Layer normalisation: (x - mean) / sqrt(variance + eps) * weight + bias, over the width (Ba et al. 2016)."""

    def build_decode_step(self) -> Function:
        shape, weight, bias, eps = self.normalized_shape, self.weight, self.bias, self.eps
        return lambda x: torch.layer_norm(x, shape, weight, bias, eps)


class RMSNorm(nn.RMSNorm, ScalableNorm):
    """RMSNorm: x / sqrt(mean(x^2) + eps) * weight (Zhang and Sennrich 2019)."""

    def __init__(self, width: int, eps: float = 1e-6):
        super().__init__(width, eps)

    def build_decode_step(self) -> Function:
        shape, weight, eps = self.normalized_shape, self.weight, self.eps
        return lambda x: torch.rms_norm(x, shape, weight, eps)


class NormConfig(Config):
    """A normalisation layer: `build(width)`."""

    kind: str
    eps: float

    def build(self, width: int) -> nn.Module:
        raise UserError(f"{self.kind}: {type(self).__name__} has no build method; write one that returns the norm")

    def check_built(self, built: Any, *arguments: Any) -> Any:
        from headwise.blocks.interface import check_norm

        check_norm(super().check_built(built), arguments[0], describe_config(self))
        return built


class LayerNormConfig(NormConfig):
    kind: Literal["layer"] = "layer"
    eps: float = 1e-5
    bias: bool = True

    def build(self, width: int) -> nn.Module:
        return LayerNorm(width, self.eps, bias=self.bias)


class RMSNormConfig(NormConfig):
    kind: Literal["rms"] = "rms"
    eps: float = 1e-6

    def build(self, width: int) -> nn.Module:
        return RMSNorm(width, self.eps)
