"""What of a model learns, and how fast."""

from __future__ import annotations

import re
from collections.abc import Mapping

from torch import nn

from headwise.blocks.stack import count_parameters
from headwise.errors import UserError
from headwise.tuning.config import TuningConfig
from headwise.tuning.lora import add_lora
from headwise.tuning.names import match_names

STACKS = ("encoder", "decoder")  # with low-rank maps these stay; heads and pools learn


def apply_tuning(model: nn.Module, config: TuningConfig) -> None:
    """Freeze and adapt what `[tuning]` says."""
    named = dict(model.named_parameters(remove_duplicate=False))  # a tied tensor can be chosen by each of its names
    stays = match_names(config.freeze, named, "tuning.freeze")
    if config.lora.rank:
        stays += [name for name in named if name.partition(".")[0] in STACKS]
    learns = {id(named[name]) for name in match_names(config.unfreeze, named, "tuning.unfreeze")}
    for name in stays:
        named[name].requires_grad_(id(named[name]) in learns)
    add_lora(model, config.lora)
    if named and not any(weight.requires_grad for weight in model.parameters()):
        raise UserError("tuning.freeze: nothing is left that learns; freeze less, or name some of it in unfreeze")


def compute_lr_scales(model: nn.Module, declared: Mapping[str, float], decay: float) -> dict[str, float]:
    """How fast each parameter learns, as a share of the learning rate: by layer where `decay` is below 1, else as the
    model declares it for parts of it."""
    if decay < 1:
        return scale_lr_by_layer(model, decay)
    names = [name for name, _ in model.named_parameters()]
    return {name: scale for part, scale in declared.items() for name in names if name.startswith(f"{part}.")}


def scale_lr_by_layer(model: nn.Module, decay: float) -> dict[str, float]:
    """Layer-wise learning-rate decay: layer-wise decay of the learning rate (Howard and Ruder 2018, 3.2): each layer
    learns `decay` times as fast as the one above it, the embedding slowest, the head with the whole rate."""
    layer = re.compile(r"(.*\bstack)\.layers\.(\d+)\.")
    names = [name for name, _ in model.named_parameters()]
    found = {name: (match[1], int(match[2])) for name in names if (match := layer.match(name))}
    depths = {stack: 1 + max(n for s, n in found.values() if s == stack) for stack, _ in found.values()}
    scales = {}
    for name in names:
        stack, number = found.get(name, (re.sub(r"\bembed\..*", "stack", name), -1))
        below = depths[stack] - number if stack in depths else 0
        scales[name] = decay**below
    return scales


def describe_size(model: nn.Module) -> str:
    """How many parameters there are, and how many of them learn."""
    whole = count_parameters(model)
    learning = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
    return f"{whole:,} parameters" + (f", of which {learning:,} learn" if learning < whole else "")
