"""Models by name."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from headwise import catalog
from headwise.config.base import merge, validate


def build(
    name: str,
    *,
    vocab: int = 0,
    outputs: int = 0,
    task: str = "",
    device: str | torch.device = "cpu",
    **settings: Any,
) -> nn.Module:
    """A model of the catalogue with random weights.

    `vocab` defaults to the published size; `outputs` are the target words or labels where they are others. `task` is
    what it shall do, of what it can: transduce, language-model, tag or classify. Settings are the keys of the
    experiment file's `[model]` table. On `device="meta"` nothing is allocated.

    >>> sum(p.numel() for p in build("transformer-base", device="meta").parameters())
    63082496
    >>> build("transformer-tiny", vocab=100, wiring="pre", encoder={"depth": 1}).vocab
    100
    """
    entry, size = catalog.find(name)
    config = validate(entry.config, merge(entry.sizes[size], settings), name)
    with torch.device(device):
        return config.build(vocab or entry.words(size), outputs or (0 if vocab else entry.outputs), task)
