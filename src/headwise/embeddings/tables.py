"""Where a model keeps the vectors of its words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor

from headwise.text.base import Tokeniser
from headwise.text.tokenisers import Tokenisers


def tables(model: Any, tokenisers: Tokenisers) -> Iterator[tuple[Tensor, Tokeniser]]:
    """Each table of word vectors once, with the tokeniser whose words its rows are."""
    if hasattr(model, "vectors"):
        yield model.vectors, tokenisers.target
    seen = set()
    for side, tokeniser in (("encoder", tokenisers.source), ("decoder", tokenisers.target)):
        if hasattr(model, side):
            weight = getattr(model, side).embed.table.weight
            if id(weight) not in seen:
                yield weight, tokeniser
            seen.add(id(weight))
