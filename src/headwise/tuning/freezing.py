"""Frozen parameters and layer-wise learning rates."""

from __future__ import annotations

import re
from collections.abc import Mapping

from torch import nn

from headwise.blocks.stack import count_parameters
from headwise.errors import UserError
from headwise.tuning.config import TuningConfig
from headwise.tuning.lora import add_lora
from headwise.tuning.names import match_names

STACKS = ("encoder", "decoder")  # frozen by LoRA; heads and poolers are trained


def apply_tuning(model: nn.Module, config: TuningConfig) -> None:
    """Freeze parameters and add LoRA as `[tuning]` says."""
    named = dict(model.named_parameters(remove_duplicate=False))  # a tied tensor can be matched by each of its names
    frozen = match_names(config.freeze, named, "tuning.freeze")
    if config.lora.rank:
        frozen += [name for name in named if name.partition(".")[0] in STACKS]
    trained = {id(named[name]) for name in match_names(config.unfreeze, named, "tuning.unfreeze")}
    for name in frozen:
        named[name].requires_grad_(id(named[name]) in trained)
    add_lora(model, config.lora)
    if named and not any(weight.requires_grad for weight in model.parameters()):
        raise UserError("tuning.freeze: no parameter is left to train; freeze less, or name some in tuning.unfreeze")


def compute_lr_scales(model: nn.Module, declared: Mapping[str, float], decay: float) -> dict[str, float]:
    """Factors of the learning rate by parameter name: by layer if `decay` is below 1, else those that the model
    declares for its modules."""
    if decay < 1:
        return scale_lr_by_layer(model, decay)
    names = [name for name, _ in model.named_parameters()]
    return {name: scale for part, scale in declared.items() for name in names if name.startswith(f"{part}.")}


def scale_lr_by_layer(model: nn.Module, decay: float) -> dict[str, float]:
    """Layer-wise learning-rate decay (Howard and Ruder 2018, section 3.2): the rate of each layer is `decay` times that
    of the layer above it; the embedding has the lowest rate, the head the full one."""
    pattern = re.compile(r"(.*\bstack)\.layers\.(\d+)\.")
    names = [name for name, _ in model.named_parameters()]
    layers = {name: (match[1], int(match[2])) for name in names if (match := pattern.match(name))}
    depths = {stack: 1 + max(n for s, n in layers.values() if s == stack) for stack, _ in layers.values()}
    scales = {}
    for name in names:
        stack, number = layers.get(name, (re.sub(r"\bembed\..*", "stack", name), -1))
        distance = depths[stack] - number if stack in depths else 0
        scales[name] = decay**distance
    return scales


def describe_size(model: nn.Module) -> str:
    """The number of parameters, and how many of them are trained."""
    total = count_parameters(model)
    trained = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
    return f"{total:,} parameters" + (f", {trained:,} of them trained" if trained < total else "")
