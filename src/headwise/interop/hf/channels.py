"""The order of the channels in the residual stream, which nothing but sinusoids can see."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from headwise.blocks.attention.multihead import Attention
from headwise.blocks.feedforward import FeedForward
from headwise.blocks.norm import LayerNorm, RMSNorm
from headwise.blocks.positions.absolute import SinusoidalPositionsConfig


def sines_first(model: Any, config: Any) -> tuple[Any, Any]:
    """The same model with all sines of its positions before the cosines, as other programs have them.

    The channels of the whole residual stream change places, which changes nothing that leaves it.
    """
    positions = getattr(config, "positions", None)
    if not isinstance(positions, SinusoidalPositionsConfig) or positions.halves:
        return model, config
    channels = torch.arange(config.width)
    order, moved = torch.cat((channels[0::2], channels[1::2])), deepcopy(model)
    for module in moved.modules():
        for weight, axis in _along(module):
            weight.data = weight.data.index_select(axis, order.to(weight.device))
    return moved, config.replace(positions=SinusoidalPositionsConfig(halves=True))


def _along(module: nn.Module) -> list[tuple[Tensor, int]]:
    """The weights of a module that have an axis along the residual stream, and that axis."""
    if isinstance(module, nn.Embedding):
        return [(module.weight, 1)]
    if isinstance(module, LayerNorm | RMSNorm):
        return [(weight, 0) for weight in module.parameters()]
    if isinstance(module, Attention):
        return _between(module.qkv, module.out)
    return _between(module.inner, module.outer) if isinstance(module, FeedForward) else []


def _between(reads: nn.Module, writes: nn.Module) -> list[tuple[Tensor, int]]:
    read = [(each.weight, 1) for each in reads.modules() if isinstance(each, nn.Linear)]
    return read + [(weight, 0) for weight in writes.parameters()]
