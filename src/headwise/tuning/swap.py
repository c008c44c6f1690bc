"""Replace the self-attention of a model by another mixer: `headwise.swap(model, "performer")`.

All other weights are kept, and those of the mixer that both kinds have: mixers with queries, keys and values use the
same tensor names (blocks/mixers/qkv_mixer.py, tuning/transfer.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import nn

from headwise.blocks.attention.multihead import Attention, SelfProjection
from headwise.blocks.attention.projections import GroupedQueryProjection, SegmentRecurrenceProjection
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
from headwise.tuning.init_from import LoadReport
from headwise.tuning.names import match_names
from headwise.tuning.transfer import transfer_weights

Model = TypeVar("Model", nn.Module, TrainedModel)
Mixer = Attention | QKVMixer
SIDES = ("encoder", "decoder")


class SwapConfig(Config):
    """The new mixer, validated like a table of an experiment."""

    mixer: AnyPart


def swap(
    model: Model,
    mixer: str | Mapping[str, Any] | PartConfig,
    layers: Iterable[int | str] | None = None,
    announce: Callable[[str], None] = print,
) -> Model:
    """A copy of a model with another mixer in place of self-attention; the model itself does not change.

    `mixer` is a value of `model.mixer` in an experiment: a name, or a table with `kind` and settings. `layers` are
    numbers, from 0 in every stack, or patterns of names such as "encoder"; by default all layers. `announce` is called
    with a line on loaded and newly initialised tensors. A loaded model keeps its tokenisers, and its experiment gets
    the new mixer, so that it can be saved, inspected, and fine-tuned with `init_from`.

    >>> import headwise
    >>> old = headwise.build("bert-tiny", vocab=50)
    >>> new = headwise.swap(old, {"kind": "performer", "features": 64}, layers=[1])
    39 tensors loaded from the model; newly initialised: encoder.stack.layers.1.parts.0.projection; unused: nothing
    """
    config = validate(SwapConfig, {"mixer": mixer}).mixer
    if not isinstance(model, TrainedModel):
        return replace_mixers(model, config, find_self_attentions(model, layers), announce)
    if isinstance(model.model, Ensemble) or not isinstance(model.model, nn.Module):
        raise UserError("swap: an ensemble or another engine's model cannot be replace; load a single run")
    names = find_self_attentions(model.model, layers)
    new_config = rewrite_config(model.experiment.model, model.model, names, config)
    defaults = {"key_value_heads": new_config.key_value_heads}
    new_model = replace_mixers(model.model, config, names, announce, **defaults)
    return replace(model, model=new_model, experiment=model.experiment.replace(model=new_config))


def find_self_attentions(model: nn.Module, layers: Iterable[int | str] | None = None) -> list[str]:
    """The names of the self-attention modules: all, or those in some layers."""
    attentions = [
        name for name, part in model.named_modules() if isinstance(part, Mixer) and isinstance(part.qkv, SelfProjection)
    ]
    if not attentions:
        raise UserError("swap: this model has no self-attention to replace; name another model")
    if layers is None:
        return attentions
    patterns = [f"*.layers.{layer}" if isinstance(layer, int) else layer for layer in layers]
    return match_names(patterns, attentions, "layers")


def replace_mixers(
    model: nn.Module, config: Any, names: Iterable[str], announce: Callable[[str], None], **defaults: Any
) -> nn.Module:
    """A copy of the model with new mixers under these names; `defaults` are fields of the build context that the config
    of the model sets."""
    model = deepcopy(model)
    new: list[str] = []
    unused: list[str] = []
    stacks: dict[str, dict[Any, Any]] = {}  # values that the mixers of a stack share
    for name in names:
        old = model.get_submodule(name)
        shared = stacks.setdefault(name.partition(".layers.")[0], {})
        mixer = build_mixer(config, replace(infer_build_context(model, name), shared=shared, **defaults), old)
        weights = transfer_weights(mixer, old)
        mixer.load_state_dict(weights, strict=False)
        model.set_submodule(name, mixer)
        new += [f"{name}.{key}" for key in mixer.state_dict().keys() - weights.keys()]
        unused += [f"{name}.{key}" for key in old.state_dict().keys() - weights.keys()]
    loaded = [name for name in model.state_dict() if name not in set(new)]
    announce(str(LoadReport("the model", loaded, sorted(new), sorted(unused), loaded)))
    return model


def build_mixer(config: Any, build_ctx: BuildContext, old: nn.Module) -> nn.Module:
    """The new mixer, with device, dtype, mode and `requires_grad` of the old one."""
    weight = old.get_submodule("out").get_parameter("weight")
    with torch.device(weight.device):
        mixer: nn.Module = config.build(build_ctx)
    if build_ctx.causal and not (isinstance(mixer, Part) and mixer.properties.causal):
        raise UserError(f"{config.kind}: would see the future in a causal model; choose another mixer")
    if has_segment_memory(old) and not has_segment_memory(mixer):
        raise UserError(f"{config.kind}: this model has segment memory; use 'attention' with its `memory_length`")
    return mixer.to(weight.dtype).train(old.training).requires_grad_(weight.requires_grad)


def has_segment_memory(part: nn.Module) -> bool:
    return isinstance(getattr(part, "qkv", None), SegmentRecurrenceProjection)


def infer_build_context(model: nn.Module, name: str) -> BuildContext:
    """The build context of a mixer, inferred from the mixer and its neighbours."""
    part = model.get_submodule(name)
    assert isinstance(part, Mixer) and isinstance(part.qkv, SelfProjection)
    qkv, score_mods = part.qkv, [mod for mod in part.score_mods if isinstance(mod, ScoreMod)]
    # Masks belong to the old mixer; position score mods belong to the model.
    positions = tuple(mod for mod in score_mods if mod.hooks.isdisjoint(("mask", "edit_weights")))

    def get_positions(heads: int, head_width: int) -> tuple[Any, ...]:
        if positions and (heads, head_width) != (qkv.heads, qkv.head_width):
            raise UserError(f"heads: the positions are for {qkv.heads} heads of width {qkv.head_width}; leave it out")
        return positions

    width = part.out.out_features
    siblings = model.get_submodule(name.rpartition(".")[0]).children()
    network = next((module for module in siblings if isinstance(module, FeedForward)), None)
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
        build_score_mods=get_positions,
    )


def rewrite_config(config: Any, model: nn.Module, names: Iterable[str], mixer: Any) -> Any:
    """The model's config with another mixer under these names: as `mixer` if it is in all layers, else as `layers`."""
    if not isinstance(config, LayerFields):
        raise UserError(f"swap: the config of a '{config.kind}' has no mixer; swap its `model` attribute instead")
    sides = [side for side in SIDES if hasattr(model, side)]
    memory = len(sides) == 2
    layouts = {side: [list(parts) for parts in expand_layers(config, side, memory)] for side in sides}
    for name in names:  # encoder.stack.layers.0.parts.0
        side, _, _, layer, _, part = name.split(".")
        layouts[side][int(layer)][int(part)] = mixer
    layers_of_side = {side: tuple(map(tuple, layers)) for side, layers in layouts.items()}
    simple = config.replace(mixer=mixer)
    if all(expand_layers(simple, side, memory) == layers for side, layers in layers_of_side.items()):
        return simple
    if any(stack.groups > 1 for stack in config.stacks()):
        raise UserError("swap: of layers that share weights in groups all can be swapped, not some; name all of them")
    if "layers" in type(config).model_fields:
        return config.replace(layers=next(iter(layers_of_side.values())))
    stacks = {side: getattr(config, side).replace(layers=layers) for side, layers in layers_of_side.items()}
    return config.replace(**stacks)


def expand_layers(config: LayerFields, side: str, memory: bool) -> tuple[Parts, ...]:
    """The parts of every layer of a stack."""
    stack = config.stacks()[SIDES.index(side)]
    pattern = stack.layers or config.pattern(memory and side == "decoder")
    return tuple(pattern[i % len(pattern)] for i in range(stack.count_layers(len(pattern))))
