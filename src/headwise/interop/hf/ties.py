"""Tied weights of `transformers`: which stored tensor each tied one equals, and which need not be stored.

`transformers` 5 ties two tensors where its class and `tie_word_embeddings` say so, unless a checkpoint stores both and
they differ (`PreTrainedModel.tie_weights`). The order of the pairs matters; it is the same here.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from headwise.interop.hf.architecture import Architecture, WeightConverter
from headwise.interop.hf.files import LazyStateDict
from headwise.models.config import Tie

# Embedding tables and output tables by task; other tasks have one table.
TABLES = {
    "language-model": ("decoder.embed.table", "decoder.head.table"),
    "masked": ("encoder.embed.table", "head.table"),
    "transduce": ("encoder.embed.table", "decoder.embed.table", "decoder.head.table"),
}


def resolve_ties(weights: LazyStateDict, tied_weights: Mapping[str, str]) -> tuple[LazyStateDict, dict[str, str]]:
    """The state dict with every tied tensor under its own name; and tied tensor -> the stored tensor it equals."""
    stored = {name for pair in tied_weights.items() for name in pair if name in weights.readers}
    stored_names = {name: name for name in stored}
    for target, source in tied_weights.items():
        if target in stored_names and source in stored_names:
            if weights.are_equal(stored_names[target], stored_names[source]):
                stored_names[target] = stored_names[source]
        elif target in stored_names:
            stored_names[source] = stored_names[target]
        elif source in stored_names:
            stored_names[target] = stored_names[source]
        else:
            siblings = [name for name, other in tied_weights.items() if other == source and name in stored_names]
            stored_names |= {target: stored_names[siblings[0]]} if siblings else {}
    return weights.rename({**{name: name for name in weights.names}, **stored_names}), stored_names


def infer_tie(task: str, architecture: Architecture, stored_names: Mapping[str, str]) -> Tie:
    """The setting `tie` of a model whose tables are these stored tensors."""
    names = [_find_hf_name(architecture, table) for table in TABLES[task]]
    source, *target, output = (stored_names.get(name, name) for name in names)
    if not target:
        return "auto" if source == output else "none"
    if source == target[0]:
        return "auto" if source == output else "inputs"
    return "target" if target[0] == output else "none"


def drop_tied(state: Mapping[str, Tensor], tied_weights: Mapping[str, str]) -> dict[str, Tensor]:
    """A state dict without the tensors that `transformers` ties to others when it loads them."""
    kept = dict(state)
    for target, source in tied_weights.items():
        if target in kept and source not in kept:
            kept[source] = kept.pop(target)
        elif target in kept and (kept[target] is kept[source] or torch.equal(kept[target], kept[source])):
            del kept[target]
    return kept


def _find_hf_name(architecture: Architecture, table: str) -> str:
    """The Hugging Face tensor name of an embedding or output table."""
    side = table.partition(".")[0]
    value = architecture.name_map.get(table) or architecture.name_map[table.replace(side, "{side}", 1)]
    name = value.names[0] if isinstance(value, WeightConverter) else value
    return f"{name.format(side=side)}.weight"
