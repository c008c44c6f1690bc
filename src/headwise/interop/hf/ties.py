"""Tied tensors of `transformers`: which stored one each of them is, and which of ours need not be stored.

`transformers` 5 ties two tensors where its class and `tie_word_embeddings` say so, unless a folder stores both of them
and they differ (`PreTrainedModel.tie_weights`). The order of the pairs counts; it is the same here.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from headwise.interop.hf.architecture import Architecture, Key
from headwise.interop.hf.files import Weights
from headwise.models.config import Tie

# Our tables of words, by task; others have only one.
TABLES = {
    "language-model": ("decoder.embed.table", "decoder.head.table"),
    "masked": ("encoder.embed.table", "head.table"),
    "transduce": ("encoder.embed.table", "decoder.embed.table", "decoder.head.table"),
}


def untie(weights: Weights, tied: Mapping[str, str]) -> tuple[Weights, dict[str, str]]:
    """The same with each tensor of a tied pair under its own name; and the stored tensor that each of them is."""
    stored = {name for pair in tied.items() for name in pair if name in weights.readers}
    holders = {name: name for name in stored}
    for target, source in tied.items():
        if target in holders and source in holders:
            if _equal(weights, holders[target], holders[source]):
                holders[target] = holders[source]
        elif target in holders:
            holders[source] = holders[target]
        elif source in holders:
            holders[target] = holders[source]
        else:
            others = [holders[name] for name, other in tied.items() if other == source and name in holders]
            holders |= dict.fromkeys((target,), others[0]) if others else {}
    readers = {**weights.readers, **{name: weights.readers[holder] for name, holder in holders.items()}}
    return Weights(weights.where, readers), holders


def tie_of(task: str, architecture: Architecture, holders: Mapping[str, str]) -> Tie:
    """How the tables of words of a model of ours are tied, where they are the same stored tensor."""
    names = [_name(architecture, table) for table in TABLES[task]]
    source, *target, output = (holders.get(name, name) for name in names)
    if not target:
        return "auto" if source == output else "none"
    if source == target[0]:
        return "auto" if source == output else "inputs"
    return "target" if target[0] == output else "none"


def fold(tensors: Mapping[str, Tensor], tied: Mapping[str, str]) -> dict[str, Tensor]:
    """The same without those that `transformers` ties to others when it reads them."""
    found = dict(tensors)
    for target, source in tied.items():
        if target in found and source not in found:
            found[source] = found.pop(target)
        elif target in found and (found[target] is found[source] or torch.equal(found[target], found[source])):
            del found[target]
    return found


def _name(architecture: Architecture, table: str) -> str:
    """Their name for a table of ours."""
    side = table.partition(".")[0]
    key = architecture.keys.get(table) or architecture.keys[table.replace(side, "{side}", 1)]
    name = key.names[0] if isinstance(key, Key) else key
    return f"{name.format(side=side)}.weight"


def _equal(weights: Weights, one: str, other: str) -> bool:
    return one == other or torch.equal(weights[one], weights[other])
