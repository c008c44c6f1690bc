"""Weights from one model to another: what queries, keys and values of one mixer are in the other, what positions of one
grid are on the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from headwise.blocks.attention.multihead import NoKeyBiasProjection, SelfProjection
from headwise.blocks.images import ImageStem
from headwise.blocks.mixers.lsh import SharedQKProjection
from headwise.blocks.positions.grid import LearnedGridPositions, resized


def transfer_weights(part: nn.Module, other: nn.Module) -> dict[str, Tensor]:
    """What of `other` has a place in `part`, by name: tensors of the same name and shape, and projections of the same
    meaning."""
    given = dict(other.state_dict())
    qkv, theirs = getattr(part, "qkv", None), getattr(other, "qkv", None)
    if isinstance(qkv, SelfProjection) and isinstance(theirs, SelfProjection):
        given |= {f"qkv.{name}": tensor for name, tensor in convert_projection(qkv, theirs).items()}
    own = part.state_dict()
    return {name: tensor for name, tensor in given.items() if name in own and own[name].shape == tensor.shape}


def resize_weights(model: nn.Module, source: nn.Module, ways: Mapping[str, str]) -> dict[str, Tensor]:
    """The projections, class_tokens and positions of `source` in the form that those of `model` have, by their names in
    `source`; `ways` says which part of the one begins with which of the other."""
    theirs = dict(source.named_modules())
    found: dict[str, Tensor] = {}
    for name, own in model.named_modules():
        part, _, rest = name.partition(".")
        place = f"{ways.get(part, part)}.{rest}"
        other = theirs.get(place)
        for kind, form in CONVERTERS.items():
            if isinstance(own, kind) and isinstance(other, kind):
                found |= {f"{place}.{leaf}": tensor for leaf, tensor in form(own, other).items()}
    return found


def convert_class_tokens(own: ImageStem, other: ImageStem) -> dict[str, Tensor]:
    """The class_tokens of `other` as far as `own` has them; further ones begin as they do in `own`."""
    if (
        own.class_tokens is None
        or other.class_tokens is None
        or own.class_tokens.shape[1] != other.class_tokens.shape[1]
    ):
        return {}
    return {
        "class_tokens": torch.cat(
            (other.class_tokens[: len(own.class_tokens)], own.class_tokens[len(other.class_tokens) :])
        )
    }


def resize_positions(own: LearnedGridPositions, other: LearnedGridPositions) -> dict[str, Tensor]:
    """The vectors of `other` for the grid of `own`, interpolated (Dosovitskiy et al. 2021, section 3.2), and those of
    class_tokens as above. Nothing where both are the same anyway, or the vectors of another width."""
    if (own.grid, own.class_tokens) == (other.grid, other.class_tokens) or own.table.shape[1] != other.table.shape[1]:
        return {}
    table, shared = (
        resized(other.table, other.class_tokens, other.grid, own.grid),
        min(own.class_tokens, other.class_tokens),
    )
    return {"table": torch.cat((table[:shared], own.table[shared : own.class_tokens], table[other.class_tokens :]))}


def convert_projection(qkv: SelfProjection, other: SelfProjection) -> dict[str, Tensor]:
    """The fused product of `other` with the rows that `qkv` has. Heads that shared keys and values get each their own;
    those that are to share some get the mean of theirs (Ainslie et al. 2023, section 2.1). Where queries are keys they
    are the queries. Nothing where the rows are the same anyway, or heads of another width, or biases stand apart, or
    `other` does not have what `qkv` has."""
    heads = [rows // qkv.head_width for rows in qkv.rows]
    there = {*other.roles, "keys"} if isinstance(other, SharedQKProjection) else {*other.roles}
    fitting = qkv.head_width == other.head_width and not any(other.heads % each for each in heads)
    fitting = fitting and there.issuperset(qkv.roles)
    if qkv.rows == other.rows or not fitting or isinstance(other, NoKeyBiasProjection):
        return {}
    return {
        f"project.{leaf}": _convert_rows(tensor, heads, qkv, other)
        for leaf, tensor in other.project.state_dict().items()
    }


def _convert_rows(tensor: Tensor, heads: list[int], qkv: SelfProjection, other: SelfProjection) -> Tensor:
    columns = tensor.reshape(len(tensor), -1)  # a bias is one column
    q, k, v = other.split(columns.t().unsqueeze(0))  # (R, C) -> (1, C, R) -> 3 x (1, H, C, D)
    parts = {"queries": q, "keys": q if isinstance(other, SharedQKProjection) else k, "values": v}
    flat = [
        # (1, H, C, D) -> (1, G, C, D) -> (GD, C)
        other.repeat_kv(parts[role]).unflatten(1, (count, -1)).mean(2).squeeze(0).transpose(1, 2).flatten(0, 1)
        for role, count in zip(qkv.roles, heads, strict=True)
    ]
    return torch.cat(flat).reshape(-1, *tensor.shape[1:])


CONVERTERS: dict[type[nn.Module], Callable[[Any, Any], dict[str, Tensor]]] = {
    SelfProjection: convert_projection,
    ImageStem: convert_class_tokens,
    LearnedGridPositions: resize_positions,
}
