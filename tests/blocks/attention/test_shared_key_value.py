"""Attention whose keys and values are one projection: the same as attention with equal weights for both, with half of
the KV cache."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import headwise
from headwise import UserError
from headwise.blocks.attention.multihead import Attention, AttentionConfig
from headwise.blocks.attention.projections import SharedKeyValueProjection
from headwise.blocks.cache import DecodingCache
from headwise.blocks.part import BuildContext
from headwise.blocks.stack import count_parameters
from headwise.blocks.stream import Context, Stream
from headwise.testing import assert_parity, check_model

WIDTH, HEADS = 16, 4
MEMORY = BuildContext(WIDTH, HEADS, hidden=8, memory_width=WIDTH)


def build(causal: bool = False, **settings: Any) -> Any:
    torch.manual_seed(0)
    config = AttentionConfig(shared_key_value=True, **settings)
    return config.build(BuildContext(WIDTH, HEADS, hidden=8, causal=causal, memory_width=WIDTH)).eval()


def copy_to_torch(part: Attention, query: tuple[Tensor, Tensor], value: tuple[Tensor, Tensor]) -> nn.MultiheadAttention:
    """torch's attention with these weights and biases, the keys' those of the values."""
    theirs = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
    theirs.in_proj_weight.data = torch.cat((query[0], value[0], value[0]))
    theirs.in_proj_bias.data = torch.cat((query[1], value[1], value[1]))
    theirs.out_proj.load_state_dict(part.out.state_dict())
    return theirs.eval()


@torch.no_grad()
def test_self_attention_is_torchs_with_equal_keys_and_values() -> None:
    part = build()
    weight, bias = part.qkv.project.weight.split(WIDTH), part.qkv.project.bias.split(WIDTH)
    theirs = copy_to_torch(part, (weight[0], bias[0]), (weight[1], bias[1]))
    x = torch.randn(2, 5, WIDTH)
    assert len(part.qkv.project.weight) == 2 * WIDTH
    assert_parity(part(x), theirs(x, x, x)[0])


@torch.no_grad()
def test_cross_attention_is_torchs_with_equal_keys_and_values() -> None:
    part = build(attend_to="memory")
    query, value = (tuple(linear.parameters()) for linear in (part.qkv.query, part.qkv.project))
    theirs = copy_to_torch(part, query, value)  # type: ignore[arg-type]
    x, memory = torch.randn(2, 5, WIDTH), torch.randn(2, 3, WIDTH)
    assert_parity(part(Stream.of(x), Context({"encoder": Stream.of(memory)})), theirs(x, memory, memory)[0])


@torch.no_grad()
@pytest.mark.parametrize(
    "settings", [{"key_value_heads": 2}, {"score_mods": ("rotary",)}, {"score": {"kind": "general"}}]
)
def test_variants_are_attention_with_equal_weights(settings: dict[str, Any]) -> None:
    part = build(causal=True, **settings)
    build_ctx = BuildContext(WIDTH, HEADS, hidden=8, causal=True)
    plain: Any = AttentionConfig(**settings).build(build_ctx).eval()
    q, v = part.qkv.rows
    state = dict(part.state_dict())
    for leaf in ("weight", "bias"):
        queries, values = state[f"qkv.project.{leaf}"].split((q, v))
        state[f"qkv.project.{leaf}"] = torch.cat((queries, values, values))
    plain.load_state_dict(state)
    x = torch.randn(2, 5, WIDTH)
    assert_parity(part(x), plain(x))


@torch.no_grad()
@pytest.mark.parametrize(
    ("settings", "tensors"), [({}, 1), ({"key_value_heads": 2}, 1), ({"score_mods": ("rotary",)}, 2)]
)
def test_the_kv_cache_stores_one_tensor_unless_keys_are_rotated(settings: dict[str, Any], tensors: int) -> None:
    part, cache, x = build(causal=True, **settings), DecodingCache(2), torch.randn(2, 5, WIDTH)
    outputs = [part(Stream.of(x[:, t : t + 1], start=t), Context(cache=cache)) for t in range(5)]
    assert_parity(torch.cat(outputs, 1), part(x))
    assert len(cache.growing[()].buffers) == tensors


@torch.no_grad()
def test_a_memory_is_stored_once() -> None:
    part, cache = build(attend_to="memory"), DecodingCache(2)
    part(Stream.of(torch.randn(2, 1, WIDTH)), Context({"encoder": Stream.of(torch.randn(2, 3, WIDTH))}, cache))
    assert [tensor.shape for tensor in cache.per_source[()]] == [(2, HEADS, 3, WIDTH // HEADS)]


def test_models_decode_with_it() -> None:
    """Cached steps, beams and joins, in self- and cross-attention."""
    shared = {"kind": "attention", "shared_key_value": True}
    check_model(
        headwise.build(
            "t5-tiny", vocab=12, mixer=shared, cross_attention={**shared, "attend_to": "memory"}, dropout=0.0
        )
    )
    check_model(headwise.build("llama-tiny", vocab=12, mixer=shared))


def test_parameters_are_those_of_t5_without_keys() -> None:
    shared = {"kind": "attention", "score": "dot", "shared_key_value": True}
    plain, model = headwise.build("t5-base", device="meta"), headwise.build("t5-base", device="meta", mixer=shared)
    assert count_parameters(plain) - count_parameters(model) == 24 * 768 * 768


def test_settings_that_exclude_it_are_refused() -> None:
    with pytest.raises(UserError, match="shared_key_value and memory_length: one attention cannot have both"):
        build(causal=True, memory_length=4)
    with pytest.raises(UserError, match="shared_key_value and key_bias: one attention cannot have both"):
        build(key_bias=False)
    with pytest.raises(UserError, match="shared_key_value: attend_to = 'unpooled' has separate keys"):
        build(attend_to="unpooled")


@torch.no_grad()
def test_swapping_to_separate_keys_keeps_the_outputs() -> None:
    shared = headwise.build("bert-tiny", vocab=12, mixer={"kind": "attention", "shared_key_value": True}).eval()
    assert any(isinstance(module, SharedKeyValueProjection) for module in shared.modules())
    plain = headwise.swap(shared, "attention").eval()
    ids = torch.tensor([[5, 6, 7, 8]])
    assert_parity(plain(ids), shared(ids))
