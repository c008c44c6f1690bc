"""The order of the channels in the residual stream, which only sinusoidal positions depend on."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from headwise.blocks.attention.multihead import Attention
from headwise.blocks.feedforward import FeedForward
from headwise.blocks.norm import LayerNorm, RMSNorm
from headwise.blocks.positions.absolute import SinusoidalPositionsConfig


def move_sines_first(model: Any, config: Any) -> tuple[Any, Any]:
    """Permute the channels of the residual stream so that sinusoidal positions have all sines before the cosines, as
    in Marian and fairseq. Outputs do not change."""
    positions = getattr(config, "positions", None)
    if not isinstance(positions, SinusoidalPositionsConfig) or positions.halves:
        return model, config
    channels = torch.arange(config.width)
    order, permuted = torch.cat((channels[0::2], channels[1::2])), deepcopy(model)
    for module in permuted.modules():
        for weight, axis in _list_stream_axes(module):
            weight.data = weight.data.index_select(axis, order.to(weight.device))
    return permuted, config.replace(positions=SinusoidalPositionsConfig(halves=True))


def _list_stream_axes(module: nn.Module) -> list[tuple[Tensor, int]]:
    """The weights of a module that have an axis along the residual stream, and that axis."""
    if isinstance(module, nn.Embedding):
        return [(module.weight, 1)]
    if isinstance(module, LayerNorm | RMSNorm):
        return [(weight, 0) for weight in module.parameters()]
    if isinstance(module, Attention):
        return _list_projection_axes(module.qkv, module.out)
    return _list_projection_axes(module.inner, module.outer) if isinstance(module, FeedForward) else []


def _list_projection_axes(inputs: nn.Module, outputs: nn.Module) -> list[tuple[Tensor, int]]:
    columns = [(linear.weight, 1) for linear in inputs.modules() if isinstance(linear, nn.Linear)]
    return columns + [(weight, 0) for weight in outputs.parameters()]
