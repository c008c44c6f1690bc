"""Memory-compressed attention: its equations, causality, decoding and packed documents."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

import headwise
from headwise.blocks.cache import DecodingCache
from headwise.blocks.part import BuildContext
from headwise.blocks.stream import Context, Stream
from headwise.blocks.tables import PARTS
from headwise.testing import assert_causal, assert_independent

WIDTH, HEADS = 8, 2


def build_mixer(causal: bool, **settings: Any) -> Any:
    torch.manual_seed(0)
    built = (
        PARTS.parse({"kind": "compressed", **settings}).build(BuildContext(WIDTH, HEADS, WIDTH, causal=causal)).double()
    )
    with torch.no_grad():
        built.shrink.add_(0.1 * torch.randn_like(built.shrink))
    return built


def make_stream(length: int, **fields: Any) -> Stream:
    x = torch.randn(2, length, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    return Stream(x, torch.arange(length), **fields)


def compute_by_definition(built: Any, inputs: Stream, causal: bool) -> Tensor:
    """Row by row, head by head, query by query."""
    q, k, v = built.qkv.split(built.qkv.project(inputs.x))
    rows, heads, length, width = q.shape
    mixed, size = torch.zeros_like(q), built.factor
    for row in range(rows):
        for head in range(heads):
            sides = []
            for kernel, side in zip(built.shrink[:, head], (k, v), strict=True):
                taps = kernel.view(size, width, width)
                groups = [[min(first + tap, length) for tap in range(size)] for first in range(0, length, size)]
                padded = torch.cat((side[row, head], torch.zeros(1, width, dtype=side.dtype)))
                packed = [sum(padded[place] @ tap for place, tap in zip(g, taps, strict=True)) for g in groups]
                sides.append(torch.stack([side[row, head, 0], *packed]))
            for i in range(length):
                # Group b ends with token 3 b - 1 and is visible to later tokens.
                visible = 1 + (i // size if causal else len(groups))
                weights = (sides[0][:visible] @ q[row, head, i] / math.sqrt(width)).softmax(0)
                mixed[row, head, i] = weights @ sides[1][:visible]
    return built.out(mixed.transpose(1, 2).flatten(2))


@pytest.mark.parametrize("factor", [1, 3, 4])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("length", [1, 3, 11])
def test_equal_to_its_equations(length: int, causal: bool, factor: int) -> None:
    built = build_mixer(causal, factor=factor)
    torch.testing.assert_close(built(make_stream(length)), compute_by_definition(built, make_stream(length), causal))


def test_no_output_depends_on_later_tokens() -> None:
    built, inputs = build_mixer(causal=True), make_stream(13)
    assert_causal(lambda x: built(inputs.with_x(x)), inputs.x)
    before = built(inputs)
    for j in range(1, 13):
        x = inputs.x.clone()
        x[:, j] += 1
        after = built(inputs.with_x(x))
        # Seen from the first token after its group on; its own output changes by its query, if it has a choice.
        group_end = 3 * (j // 3 + 1)
        changed = ((after - before).abs() > 1e-9).any(-1).all(0).tolist()
        assert changed[j] == (j >= 3) and not any(changed[j + 1 : group_end]) and all(changed[group_end:])


def test_decoding_step_by_step_equals_one_forward_pass() -> None:
    built, inputs = build_mixer(causal=True), make_stream(23)
    whole, cache, found, start = built(inputs), DecodingCache(2), [], 0
    for length in (4, 1, 1, 1, 5, *(1,) * 11):
        piece = Stream.of(inputs.x[:, start : start + length], start=start)
        found.append(built(piece, Context(cache=cache)))
        start += length
    torch.testing.assert_close(torch.cat(found, 1), whole)


def test_packed_documents_do_not_attend_to_each_other() -> None:
    """A second document attends to its own complete groups, at first to none."""
    segment = (torch.arange(14) >= 7).long().expand(2, -1)
    built, inputs = build_mixer(causal=True), make_stream(14, segment=segment)
    before = built(inputs)
    assert_independent(
        lambda x: built(inputs.with_x(x)), inputs.x, (slice(None), slice(7, None)), (slice(None), slice(7))
    )
    torch.testing.assert_close(before[:, 7:12], built.out.bias.expand(2, 5, -1))  # its first group is 9 to 11
    assert torch.isfinite(before).all()


def test_the_recorded_map_sums_to_one_and_divides_the_weight_of_a_group() -> None:
    for causal in (False, True):
        with headwise.record() as maps:
            build_mixer(causal)(make_stream(11))
        (attention,) = maps.weights[()]
        assert attention.shape == (2, HEADS, 11, 11)
        torch.testing.assert_close(attention[..., 3:6].std(-1), torch.zeros(2, HEADS, 11, dtype=torch.float64))
        if causal:
            torch.testing.assert_close(attention.sum(-1), torch.ones(2, HEADS, 11, dtype=torch.float64))
            assert not attention.triu(1)[..., 1:].any()


def test_at_initialisation_it_is_near_exact_attention() -> None:
    """The mean of three equal tokens is each of them."""
    x = make_stream(4).x.repeat_interleave(3, 1)
    built = PARTS.parse({"kind": "compressed"}).build(BuildContext(WIDTH, HEADS, WIDTH)).double()
    q, k, v = built.qkv.split(built.qkv.project(x))
    k, v = (torch.cat((side[:, :, :1], side[:, :, ::3]), 2) for side in (k, v))
    mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    torch.testing.assert_close(built(x), built.out(mixed.transpose(1, 2).flatten(2)))
