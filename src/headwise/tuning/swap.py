"""Another mixer in the place of self-attention: `headwise.swap(model, "performer")`.

Everything else of a model stays as it is, and of the mixer every weight that has a place in the other: mixers with
queries, keys and values call their tensors alike (blocks/mixers/qkv_mixer.py, tuning/transfer.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import nn

from headwise.blocks.attention.multihead import (
    Attention,
    GroupedQueryProjection,
    SegmentRecurrenceProjection,
    SelfProjection,
)
from headwise.blocks.attention.score_mods import Causal, ScoreMod
from headwise.blocks.feedforward import FeedForward
from headwise.blocks.mixers.qkv_mixer import QKVMixer
from headwise.blocks.part import BuildContext, PartConfig
from headwise.blocks.stream import Part
from headwise.blocks.tables import AnyPart
from headwise.config.base import Config, validate
from headwise.decode.ensemble import Ensemble
from headwise.errors import UserError
from headwise.inference.trained_model import TrainedModel
from headwise.models.layers import LayerFields, Parts
from headwise.tuning.init_from import Pretrained
from headwise.tuning.names import match_names
from headwise.tuning.transfer import transfer_weights

Model = TypeVar("Model", nn.Module, TrainedModel)
Mixer = Attention | QKVMixer
SIDES = ("encoder", "decoder")


class Choice(Config):
    """What `swap` is asked for, checked like any table of an experiment."""

    mixer: AnyPart


def swap(
    model: Model,
    mixer: str | Mapping[str, Any] | PartConfig,
    layers: Iterable[int | str] | None = None,
    announce: Callable[[str], None] = print,
) -> Model:
    """A copy of a model whose self-attentions are of another kind; the given one is left alone.

    `mixer` is what `model.mixer` of an experiment may be: a name, or a table with `kind` and settings. `layers` are
    numbers, from 0 in every stack, or patterns of names such as "encoder"; without them all are exchanged. `announce`
    hears what was carried over and what begins anew. A loaded model keeps its tokenisers, and its experiment says the
    new mixer, so that it can be saved, inspected, and trained further with `init_from`.

    >>> import headwise
    >>> old = headwise.build("bert-tiny", vocab=50)
    >>> new = headwise.swap(old, {"kind": "performer", "features": 64}, layers=[1])
    39 tensors taken over from the model given; new: encoder.stack.layers.1.parts.0.projection; left there: nothing
    """
    config = validate(Choice, {"mixer": mixer}).mixer
    if not isinstance(model, TrainedModel):
        return exchanged(model, config, self_attentions(model, layers), announce)
    if isinstance(model.model, Ensemble) or not isinstance(model.model, nn.Module):
        raise UserError("swap: an ensemble or an engine has no attention of its own; load a single run")
    names = self_attentions(model.model, layers)
    told = rewritten(model.experiment.model, model.model, names, config)
    defaults = {"key_value_heads": told.key_value_heads}
    other = exchanged(model.model, config, names, announce, **defaults)
    return replace(model, model=other, experiment=model.experiment.replace(model=told))


def self_attentions(model: nn.Module, layers: Iterable[int | str] | None = None) -> list[str]:
    """The names of the parts whose tokens look at one another: all, or those inside some layers."""
    found = [
        name for name, part in model.named_modules() if isinstance(part, Mixer) and isinstance(part.qkv, SelfProjection)
    ]
    if not found:
        raise UserError("swap: this model has no self-attention that could be exchanged; name another")
    if layers is None:
        return found
    return match_names([f"*.layers.{each}" if isinstance(each, int) else each for each in layers], found, "layers")


def exchanged(
    model: nn.Module, config: Any, names: Iterable[str], announce: Callable[[str], None], **defaults: Any
) -> nn.Module:
    """A copy with other parts under these names; `defaults` are the model's for what parts leave open."""
    model = deepcopy(model)
    new: list[str] = []
    left: list[str] = []
    stacks: dict[str, dict[Any, Any]] = {}  # what the new parts of each have in common
    for name in names:
        old = model.get_submodule(name)
        shared = stacks.setdefault(name.partition(".layers.")[0], {})
        part = built(config, replace(site_of(model, name), shared=shared, **defaults), old)
        taken = transfer_weights(part, old)
        part.load_state_dict(taken, strict=False)
        model.set_submodule(name, part)
        new += [f"{name}.{key}" for key in part.state_dict().keys() - taken.keys()]
        left += [f"{name}.{key}" for key in old.state_dict().keys() - taken.keys()]
    kept = [name for name in model.state_dict() if name not in set(new)]
    announce(str(Pretrained("the model given", kept, sorted(new), sorted(left), kept)))
    return model


def built(config: Any, site: BuildContext, old: nn.Module) -> nn.Module:
    """The other part, where and how precisely the old one computes, learning if it learns."""
    weight = old.get_submodule("out").get_parameter("weight")
    with torch.device(weight.device):
        part: nn.Module = config.build(site)
    if site.causal and not (isinstance(part, Part) and part.properties.causal):
        raise UserError(f"{config.kind}: would see the future in this model, which must not; choose another mixer")
    if recalls(old) and not recalls(part):
        raise UserError(f"{config.kind}: this model recalls earlier segments; use 'attention' with its `memory_length`")
    return part.to(weight.dtype).train(old.training).requires_grad_(weight.requires_grad)


def recalls(part: nn.Module) -> bool:
    return isinstance(getattr(part, "qkv", None), SegmentRecurrenceProjection)


def site_of(model: nn.Module, name: str) -> BuildContext:
    """The place of a part, read off the part itself and its neighbours."""
    part = model.get_submodule(name)
    assert isinstance(part, Mixer) and isinstance(part.qkv, SelfProjection)
    qkv, score_mods = part.qkv, [mod for mod in part.score_mods if isinstance(mod, ScoreMod)]
    # Masks and choices are the old part's own; how distance counts is the model's.
    positions = tuple(mod for mod in score_mods if mod.hooks.isdisjoint(("mask", "edit_weights")))

    def same(heads: int, head_width: int) -> tuple[Any, ...]:
        if positions and (heads, head_width) != (qkv.heads, qkv.head_width):
            raise UserError(f"heads: the model's positions are made for {qkv.heads} of {qkv.head_width}; leave it out")
        return positions

    width = part.out.out_features
    beside = model.get_submodule(name.rpartition(".")[0]).children()
    network = next((each for each in beside if isinstance(each, FeedForward)), None)
    return BuildContext(
        width=width,
        heads=qkv.heads,
        hidden=network.outer.in_features if network else 4 * width,
        head_width=qkv.head_width,
        key_value_heads=qkv.key_value_heads if isinstance(qkv, GroupedQueryProjection) else 0,
        causal=getattr(part, "causal", any(isinstance(mod, Causal) for mod in score_mods)),
        attention_dropout=getattr(part, "dropout", 0.0),
        hidden_dropout=getattr(network.drop, "p", 0.0) if network else 0.0,
        attention_bias=part.out.bias is not None,
        mlp_bias=network is None or network.outer.bias is not None,
        score_mods=same,
    )


def rewritten(config: Any, model: nn.Module, names: Iterable[str], mixer: Any) -> Any:
    """The model's config with another mixer under these names: one for all where that says it, else layer by layer."""
    if not isinstance(config, LayerFields):
        raise UserError(f"swap: the config of a '{config.kind}' cannot name its mixers; swap its `model` alone")
    sides = [side for side in SIDES if hasattr(model, side)]
    memory = len(sides) == 2
    wanted = {side: [list(parts) for parts in layers_of(config, side, memory)] for side in sides}
    for name in names:  # encoder.stack.layers.0.parts.0
        side, _, _, layer, _, part = name.split(".")
        wanted[side][int(layer)][int(part)] = mixer
    asked = {side: tuple(map(tuple, layers)) for side, layers in wanted.items()}
    simple = config.replace(mixer=mixer)
    if all(layers_of(simple, side, memory) == layers for side, layers in asked.items()):
        return simple
    if "layers" in type(config).model_fields:
        return config.replace(layers=next(iter(asked.values())))
    stacks = {side: getattr(config, side).replace(layers=layers) for side, layers in asked.items()}
    return config.replace(**stacks)


def layers_of(config: LayerFields, side: str, memory: bool) -> tuple[Parts, ...]:
    """What every layer of a stack is made of."""
    stack = config.stacks()[SIDES.index(side)]
    pattern = stack.layers or config.pattern(memory and side == "decoder")
    return tuple(pattern[i % len(pattern)] for i in range(len(pattern) if stack.shared else stack.depth))
