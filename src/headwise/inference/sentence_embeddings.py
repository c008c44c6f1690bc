"""Sentence embeddings: the last hidden states of a model, pooled (Reimers and Gurevych 2019)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from headwise.blocks.evaluation import get_device, inference_mode
from headwise.blocks.heads import Pooler
from headwise.blocks.pool import POOLS
from headwise.blocks.stream import Context, Stream
from headwise.errors import UserError, nearest
from headwise.models.language_model import LanguageModel
from headwise.models.text_classifier import TokenClassifier
from headwise.tasks.tag import batch_texts
from headwise.text import EOS, PAD
from headwise.text.tokenisers import Tokenisers


def embed(
    model: Any,
    tokenisers: Tokenisers,
    texts: Sequence[str],
    pool: str = "mean",
    normalised: bool = False,
    tokens: int = 8192,
) -> Tensor:
    """Sentence embeddings of the texts, (N, C); `normalised` ones have length 1, so that their products are cosines.

    `pool` is mean, max, first or last over the tokens, special ones included; or pooler, the layer that some models
    have after the first token.
    """
    check_pool(model, pool)
    rows = encode_texts(model, tokenisers, texts)
    check_lengths(model, texts, rows)
    device = get_device(model)
    outputs: list[Tensor] = [torch.empty(0)] * len(rows)
    with inference_mode(model):
        for indices, ids in batch_texts(rows, tokens):
            vectors = pool_states(model, last_hidden_states(model, ids.to(device)), pool)
            for index, vector in zip(indices, vectors.float(), strict=True):
                outputs[index] = vector
    # outside inference mode, so that the embeddings can be inputs of training
    table = torch.stack(outputs) if outputs else torch.empty(0, 0)
    return torch.nn.functional.normalize(table, dim=-1) if normalised else table


def check_pool(model: Any, pool: str) -> None:
    """Raise if the model has no hidden states or the pooling is not known."""
    if not hasattr(model, "encoder") and not isinstance(model, LanguageModel):
        raise UserError("this run has no hidden states to pool; choose a single neural model")
    if pool != "pooler" and pool not in POOLS:
        raise UserError(f"pool: there is no '{pool}'; {nearest(pool, [*POOLS, 'pooler'])}")
    if pool == "pooler" and find_pooler(model) is None:
        raise UserError("pool: this run's model has no pooler; use mean or first")


def check_lengths(model: Any, texts: Sequence[str], rows: Sequence[Sequence[int]]) -> None:
    """Raise if a text is longer than the learned positions of the model."""
    side = model.decoder if isinstance(model, LanguageModel) else model.encoder
    limit = getattr(getattr(getattr(side, "embed", None), "positions", None), "max_length", 0)
    prefix = side.prefix_id is not None if limit else 0
    for text, row in zip(texts, rows, strict=True):
        if limit and (length := len(row) + prefix) > limit:
            raise UserError(
                f"{text[:40]!r}...: has {length} tokens, special ones included, and the model reads at most {limit}; "
                "shorten or split this text"
            )


def find_pooler(model: Any) -> Pooler | None:
    return next((part for part in model.modules() if isinstance(part, Pooler)), None)


def encode_texts(model: Any, tokenisers: Tokenisers, texts: Sequence[str]) -> list[list[int]]:
    """The ids of each text with the special tokens of the model."""
    if isinstance(model, LanguageModel):
        return [[model.start_id, *ids] for ids in tokenisers.target.encode_batch(texts)]
    ends = tokenisers.source.appends_eos or not isinstance(model, TokenClassifier)
    end = [EOS] if ends else []
    return [[*ids, *end] for ids in tokenisers.source.encode_batch(texts)]


def last_hidden_states(model: Any, ids: Tensor) -> Stream:
    """The last hidden state of each token."""
    if isinstance(model, LanguageModel):
        return replace(model.decoder(ids, Context()), keep=ids != PAD)
    return model.encoder(ids, Context())


def pool_states(model: Any, stream: Stream, pool: str) -> Tensor:
    """(B, T, C) -> (B, C)."""
    layer = find_pooler(model) if pool == "pooler" else None
    return POOLS[pool](stream) if layer is None else layer(POOLS["first"](stream))
