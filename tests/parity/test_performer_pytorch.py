"""FAVOR+ of `performer-pytorch` with the same directions gives the same numbers."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from headwise.blocks.mixers.favor import PositiveFeatures, ReluFeatures
from headwise.blocks.mixers.linear import attend_all, attend_causally, init_state
from headwise.blocks.stream import Stream

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    warnings.simplefilter("ignore", FutureWarning)
    from performer_pytorch.performer_pytorch import FastAttention, causal_linear_attention_noncuda

close = partial(torch.testing.assert_close, rtol=1e-5, atol=1e-5)


def theirs(**settings: Any) -> tuple[Any, Tensor]:
    attention = FastAttention(dim_heads=16, nb_features=40, **settings).double()
    return attention, attention.projection_matrix


def heads() -> tuple[Tensor, ...]:
    return torch.randn(3, 2, 3, 300, 16, dtype=torch.float64).unbind(0)


def test_the_softmax_kernel() -> None:
    attention, matrix = theirs()
    q, k, v = heads()
    close(attend_all(PositiveFeatures(matrix, epsilon=1e-4), q, k, v, None), attention(q, k, v))


def test_the_relu_kernel() -> None:
    attention, matrix = theirs(generalized_attention=True)
    q, k, v = heads()
    close(attend_all(ReluFeatures(matrix), q, k, v, None), attention(q, k, v))


@pytest.mark.parametrize("kind", [PositiveFeatures, ReluFeatures])
def test_prefix_sums(kind: type[PositiveFeatures | ReluFeatures]) -> None:
    """Of the same features; theirs, made with a maximum over all keys, would let later tokens through."""
    _, matrix = theirs()
    q, k, v = heads()
    phi = kind(matrix)
    out, _ = attend_causally(phi, q, k, v, Stream.of(q[0]), init_state(phi, k, v))
    close(out, causal_linear_attention_noncuda(phi.map_queries(q), phi.map_keys(k), v, eps=0.0))
