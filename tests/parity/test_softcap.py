"""Logit soft-capping against the eager attention of transformers' Gemma 2."""

from __future__ import annotations

from types import SimpleNamespace

import torch
from transformers.models.gemma2.modeling_gemma2 import eager_attention_forward

import headwise
from headwise.blocks.attention.kernels import get_kernel
from headwise.blocks.attention.score_mods import AttentionInputs, AttentionLayout, Causal, SoftCap
from headwise.testing import assert_causal_in_embeddings, assert_parity

CAP, SCALE = 1.5, 0.7


def test_outputs_and_weights_are_gemmas() -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, 4, 6, 5, dtype=torch.float64).mul(3).unbind(0)
    masked = torch.ones(6, 6, dtype=torch.bool).triu(1)
    additive = torch.zeros(6, 6, dtype=torch.float64).masked_fill(masked, -torch.inf)
    module = SimpleNamespace(num_key_value_groups=1, training=False)
    theirs, _ = eager_attention_forward(module, q, k, v, additive[None, None], 0.0, SCALE, softcap=CAP)
    inputs = AttentionInputs(q, k, v, SCALE, AttentionLayout(6, 6), (SoftCap(CAP), Causal()))
    for kernel in ("plain", "auto", "chunked"):
        assert_parity(get_kernel(kernel)(inputs).transpose(1, 2), theirs)
    uncapped = AttentionInputs(q, k, v, SCALE, AttentionLayout(6, 6), (Causal(),))
    assert (get_kernel("plain")(uncapped).transpose(1, 2) - theirs).abs().max() > 0.1


def test_it_is_one_line_of_an_experiment() -> None:
    capped = headwise.build(
        "gpt2-tiny", vocab=20, mixer={"kind": "attention", "score_mods": [{"kind": "softcap", "cap": 5.0}]}
    )
    assert sum(isinstance(module, SoftCap) for module in capped.modules()) == 2
    ids = torch.randint(4, 20, (1, 8))
    assert_causal_in_embeddings(capped, lambda: capped(ids), ids)
