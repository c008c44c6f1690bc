"""Where a model keeps the vectors of its words."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from headwise.embeddings.vectors import Vectors
from headwise.errors import UserError
from headwise.inference.trained_model import load
from headwise.text import UNK
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


def learnt(run: Path) -> Vectors:
    """The word vectors of a trained run: those of its source where it has two sides."""
    loaded = load(run)
    table, tokeniser = next(tables(loaded.model, loaded.tokenisers), (None, None))
    if table is None or tokeniser is None:
        raise UserError(f"{run}: this run has no word vectors; name one that was trained to embed")
    rows: np.ndarray = table.detach().cpu().numpy()
    return Vectors(tuple(tokeniser.vocabulary[UNK + 1 :]), rows[UNK + 1 :], str(run))
