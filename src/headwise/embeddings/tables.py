"""The embedding tables of a model."""

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


def find_tables(model: Any, tokenisers: Tokenisers) -> Iterator[tuple[Tensor, Tokeniser]]:
    """Each embedding table once, with the tokeniser of its rows."""
    if hasattr(model, "vectors"):
        yield model.vectors, tokenisers.target
    seen = set()
    for side, tokeniser in (("encoder", tokenisers.source), ("decoder", tokenisers.target)):
        if hasattr(model, side):
            weight = getattr(model, side).embed.table.weight
            if id(weight) not in seen:
                yield weight, tokeniser
            seen.add(id(weight))


def load_vectors(run: Path) -> Vectors:
    """The word vectors of a trained run: of the source side if it has two."""
    trained = load(run)
    table, tokeniser = next(find_tables(trained.model, trained.tokenisers), (None, None))
    if table is None or tokeniser is None:
        raise UserError(f"{run}: this run has no word vectors; name one that was trained to embed")
    rows: np.ndarray = table.detach().cpu().numpy()
    return Vectors(tuple(tokeniser.vocabulary[UNK + 1 :]), rows[UNK + 1 :], str(run))
