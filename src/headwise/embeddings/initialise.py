"""Initialise a model's embedding tables with pretrained word vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from headwise.blocks.token_embeddings import AdaptiveEmbedding
from headwise.embeddings.tables import find_tables
from headwise.embeddings.vectors import Vectors
from headwise.errors import UserError
from headwise.text import UNK
from headwise.text.tokenisers import Tokenisers


def initialise(model: Any, tokenisers: Tokenisers, vectors: Vectors, announce: Callable[[str], None]) -> None:
    """Copy word vectors into each table of the model, for the words in both; the others stay as they are. `announce`
    gets a message with the number of words found."""
    source, width = vectors.name, vectors.table.shape[1]
    if any(isinstance(module, AdaptiveEmbedding) for module in model.modules()):
        raise UserError(
            "model.embeddings: adaptive embeddings have no table for word vectors; use token_embedding = 'table'"
        )
    total = 0
    for table, tokeniser in find_tables(model, tokenisers):
        if table.shape[1] != width:
            raise UserError(
                f"model.embeddings: the vectors of {source} are {width} wide, the model's {table.shape[1]}; "
                "give it that width"
            )
        words = list(enumerate(tokeniser.vocabulary))[UNK + 1 :]
        rows = {number: vectors.index[word] for number, word in words if word in vectors.index}
        total += len(rows)
        values = torch.from_numpy(vectors.table[list(rows.values())]).to(table)
        with torch.no_grad():
            table[torch.tensor(list(rows), dtype=torch.long, device=table.device)] = values
        share = 100 * len(rows) / len(words)
        announce(f"{len(rows):,} of {len(words):,} words ({share:.0f} %) begin with their vectors from {source}")
    if not total:
        raise UserError(f"model.embeddings: no word of {source} is in the vocabulary; check units and language")
