"""One vector for a text: what a model's last layer makes of its tokens, pooled (Reimers and Gurevych 2019)."""

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
from headwise.tasks.tag import batches
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
    """A vector for each text, (N, C); `normalised` ones have length 1, so that their products are cosines.

    `pool` is mean, max, first or last over the tokens, marks included; or pooler, the layer which some models put
    behind the first.
    """
    check(model, pool)
    rows = read(model, tokenisers, texts)
    device = get_device(model)
    found: list[Tensor] = [torch.empty(0)] * len(rows)
    with inference_mode(model):
        for numbers, ids in batches(rows, tokens):
            vectors = pooled(model, states(model, ids.to(device)), pool)
            for number, vector in zip(numbers, vectors.float(), strict=True):
                found[number] = vector
    table = torch.stack(found) if found else torch.empty(0, 0)  # an ordinary tensor again, that one may learn from
    return torch.nn.functional.normalize(table, dim=-1) if normalised else table


def check(model: Any, pool: str) -> None:
    """Refuse what gives no vectors, before any text is read."""
    if not hasattr(model, "encoder") and not isinstance(model, LanguageModel):
        raise UserError("this run has no layers that could give a text's vector; name a single neural model")
    if pool != "pooler" and pool not in POOLS:
        raise UserError(f"pool: there is no '{pool}'; {nearest(pool, [*POOLS, 'pooler'])}")
    if pool == "pooler" and pooler(model) is None:
        raise UserError("pool: this run's model has no pooler; use mean or first")


def pooler(model: Any) -> Pooler | None:
    return next((part for part in model.modules() if isinstance(part, Pooler)), None)


def read(model: Any, tokenisers: Tokenisers, texts: Sequence[str]) -> list[list[int]]:
    """The ids of each text with the marks that the model has learnt to read."""
    if isinstance(model, LanguageModel):
        return [[model.start_id, *ids] for ids in tokenisers.target.encode_batch(texts)]
    end = [] if isinstance(model, TokenClassifier) else [EOS]
    return [[*ids, *end] for ids in tokenisers.source.encode_batch(texts)]


def states(model: Any, ids: Tensor) -> Stream:
    """What the last layer says of each token."""
    if isinstance(model, LanguageModel):
        return replace(model.decoder(ids, Context()), keep=ids != PAD)
    return model.encoder(ids, Context())


def pooled(model: Any, stream: Stream, pool: str) -> Tensor:
    """(B, T, C) -> (B, C)."""
    layer = pooler(model) if pool == "pooler" else None
    return POOLS[pool](stream) if layer is None else layer(POOLS["first"](stream))
