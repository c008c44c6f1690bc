"""Weight transfer between models: projections between mixers, position embeddings between image sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from headwise.blocks.attention.multihead import SelfProjection
from headwise.blocks.attention.projections import NoKeyBiasProjection, SharedKeyValueProjection
from headwise.blocks.images import ImageStem
from headwise.blocks.mixers.lsh import SharedQKProjection
from headwise.blocks.positions.grid import LearnedGridPositions, interpolate_positions


def transfer_weights(new: nn.Module, old: nn.Module) -> dict[str, Tensor]:
    """The weights of mixer `old` that mixer `new` can load: tensors with the same name and shape, and converted
    projections."""
    tensors = dict(old.state_dict())
    qkv, old_qkv = getattr(new, "qkv", None), getattr(old, "qkv", None)
    if isinstance(qkv, SelfProjection) and isinstance(old_qkv, SelfProjection):
        tensors |= {f"qkv.{name}": tensor for name, tensor in convert_projection(qkv, old_qkv).items()}
    expected = new.state_dict()
    return {
        name: tensor for name, tensor in tensors.items() if name in expected and expected[name].shape == tensor.shape
    }


def resize_weights(model: nn.Module, source: nn.Module, sources: Mapping[str, str]) -> dict[str, Tensor]:
    """Projections, class tokens and position embeddings of `source`, converted to the shapes in `model`, by their names
    in `source`; `sources` maps top-level modules of `model` to those of `source`."""
    source_modules = dict(source.named_modules())
    converted: dict[str, Tensor] = {}
    for name, new in model.named_modules():
        top, _, rest = name.partition(".")
        source_name = f"{sources.get(top, top)}.{rest}"
        old = source_modules.get(source_name)
        for kind, convert in CONVERTERS.items():
            if isinstance(new, kind) and isinstance(old, kind):
                converted |= {f"{source_name}.{leaf}": tensor for leaf, tensor in convert(new, old).items()}
    return converted


def convert_class_tokens(new: ImageStem, old: ImageStem) -> dict[str, Tensor]:
    """The class tokens of `old`, as many as `new` has; additional ones keep the initialisation of `new`."""
    if new.class_tokens is None or old.class_tokens is None or new.class_tokens.shape[1] != old.class_tokens.shape[1]:
        return {}
    tokens = (old.class_tokens[: len(new.class_tokens)], new.class_tokens[len(old.class_tokens) :])
    return {"class_tokens": torch.cat(tokens)}


def resize_positions(new: LearnedGridPositions, old: LearnedGridPositions) -> dict[str, Tensor]:
    """The position embeddings of `old` interpolated to the grid of `new` (Dosovitskiy et al. 2021, section 3.2), and
    those of the class tokens. Empty if grid and class tokens are the same, or the widths differ."""
    if (new.grid, new.class_tokens) == (old.grid, old.class_tokens) or new.table.shape[1] != old.table.shape[1]:
        return {}
    table = interpolate_positions(old.table, old.class_tokens, old.grid, new.grid, new.antialias)
    shared = min(new.class_tokens, old.class_tokens)
    return {"table": torch.cat((table[:shared], new.table[shared : new.class_tokens], table[old.class_tokens :]))}


def convert_projection(new: SelfProjection, old: SelfProjection) -> dict[str, Tensor]:
    """The fused QKV projection of `old` with the rows of `new`.

    Heads that shared keys and values get a copy each; heads that will share them get the mean of theirs (Ainslie et al.
    2023, section 2.1). Where queries and keys are shared, the keys are the queries; where keys and values are, the
    keys are the values. Empty if the rows are the same, if
    head widths differ, if `old` lacks a role that `new` has, or if it stores its biases separately.
    """
    heads = [rows // new.head_width for rows in new.rows]
    shares_keys = isinstance(old, SharedQKProjection | SharedKeyValueProjection)
    roles = {*old.roles, "keys"} if shares_keys else {*old.roles}
    fits = new.head_width == old.head_width and not any(old.heads % count for count in heads)
    fits = fits and roles.issuperset(new.roles)
    if new.rows == old.rows or not fits or isinstance(old, NoKeyBiasProjection):
        return {}
    tensors = old.project.state_dict()
    return {f"project.{leaf}": _convert_rows(tensor, heads, new, old) for leaf, tensor in tensors.items()}


def _convert_rows(tensor: Tensor, heads: list[int], new: SelfProjection, old: SelfProjection) -> Tensor:
    columns = tensor.reshape(len(tensor), -1)  # a bias is one column
    q, k, v = old.split(columns.t().unsqueeze(0))  # (R, C) -> (1, C, R) -> 3 x (1, H, C, D)
    parts = {"queries": q, "keys": q if isinstance(old, SharedQKProjection) else k, "values": v}
    rows = [
        # (1, H, C, D) -> (1, G, C, D) -> (GD, C)
        old.repeat_kv(parts[role]).unflatten(1, (count, -1)).mean(2).squeeze(0).transpose(1, 2).flatten(0, 1)
        for role, count in zip(new.roles, heads, strict=True)
    ]
    return torch.cat(rows).reshape(-1, *tensor.shape[1:])


CONVERTERS: dict[type[nn.Module], Callable[[Any, Any], dict[str, Tensor]]] = {
    SelfProjection: convert_projection,
    ImageStem: convert_class_tokens,
    LearnedGridPositions: resize_positions,
}
