"""Begin with vectors that exist: the rows of known words are copied into a model's tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from headwise.embeddings.tables import tables
from headwise.embeddings.vectors import Vectors
from headwise.errors import UserError
from headwise.text import UNK
from headwise.text.tokenisers import Tokenisers


def initialise(model: Any, tokenisers: Tokenisers, vectors: Vectors, announce: Callable[[str], None]) -> None:
    """Copy word vectors into each table of the model, for the words in both; the others stay as they are. `announce`
    hears how many were found."""
    source, width = vectors.name, vectors.table.shape[1]
    found = 0
    for table, tokeniser in tables(model, tokenisers):
        if table.shape[1] != width:
            raise UserError(
                f"model.embeddings: the vectors of {source} are {width} wide, the model's {table.shape[1]}; "
                "give it that width"
            )
        own = list(enumerate(tokeniser.vocabulary))[UNK + 1 :]
        rows = {number: vectors.numbers[word] for number, word in own if word in vectors.numbers}
        found += len(rows)
        copied = torch.from_numpy(vectors.table[list(rows.values())]).to(table)
        with torch.no_grad():
            table[torch.tensor(list(rows), dtype=torch.long, device=table.device)] = copied
        share = 100 * len(rows) / len(own)
        announce(f"{len(rows):,} of {len(own):,} words ({share:.0f} %) begin with their vectors from {source}")
    if not found:
        raise UserError(f"model.embeddings: no word of {source} is in the vocabulary; check units and language")
