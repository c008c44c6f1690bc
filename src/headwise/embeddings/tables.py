"""The embedding tables of a model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn

from headwise.text.base import Tokeniser
from headwise.text.tokenisers import Tokenisers


def find_tables(model: Any, tokenisers: Tokenisers) -> Iterator[tuple[Tensor, Tokeniser]]:
    """Each embedding table once, with the tokeniser of its rows."""
    if hasattr(model, "vectors"):
        yield model.vectors, tokenisers.target
    seen: list[nn.Module] = []
    for side, tokeniser in (("encoder", tokenisers.source), ("decoder", tokenisers.target)):
        if hasattr(model, side):
            table = getattr(model, side).embed.table
            if not any(table is other for other in seen):
                yield table.weight, tokeniser
            seen.append(table)
