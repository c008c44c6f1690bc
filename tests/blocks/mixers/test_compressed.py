"""Memory-compressed attention: three tokens as one key and value, and never one of the future."""

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


def part(causal: bool, **settings: Any) -> Any:
    torch.manual_seed(0)
    built = (
        PARTS.parse({"kind": "compressed", **settings}).build(BuildContext(WIDTH, HEADS, WIDTH, causal=causal)).double()
    )
    with torch.no_grad():
        built.shrink.add_(0.1 * torch.randn_like(built.shrink))
    return built


def stream(length: int, **beside: Any) -> Stream:
    x = torch.randn(2, length, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    return Stream(x, torch.arange(length), **beside)


def by_hand(built: Any, given: Stream, causal: bool) -> Tensor:
    """Row by row, head by head, query by query."""
    q, k, v = built.qkv.split(built.qkv.project(given.x))
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
                # Group b ends with token 3 b - 1 and is seen by those behind it.
                seen = 1 + (i // size if causal else len(groups))
                weights = (sides[0][:seen] @ q[row, head, i] / math.sqrt(width)).softmax(0)
                mixed[row, head, i] = weights @ sides[1][:seen]
    return built.out(mixed.transpose(1, 2).flatten(2))


@pytest.mark.parametrize("factor", [1, 3, 4])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("length", [1, 3, 11])
def test_equal_to_its_equations(length: int, causal: bool, factor: int) -> None:
    built = part(causal, factor=factor)
    torch.testing.assert_close(built(stream(length)), by_hand(built, stream(length), causal))


def test_no_token_sees_what_comes_after_it() -> None:
    built, given = part(causal=True), stream(13)
    assert_causal(lambda x: built(given.with_x(x)), given.x)
    before = built(given)
    for j in range(1, 13):
        x = given.x.clone()
        x[:, j] += 1
        after = built(given.with_x(x))
        # Seen from the first token after its group on; its own output changes by its query, if it has a choice.
        group_end = 3 * (j // 3 + 1)
        changed = ((after - before).abs() > 1e-9).any(-1).all(0).tolist()
        assert changed[j] == (j >= 3) and not any(changed[j + 1 : group_end]) and all(changed[group_end:])


def test_steps_give_what_the_whole_gives() -> None:
    built, given = part(causal=True), stream(23)
    whole, cache, found, start = built(given), DecodingCache(2), [], 0
    for length in (4, 1, 1, 1, 5, *(1,) * 11):
        piece = Stream.of(given.x[:, start : start + length], start=start)
        found.append(built(piece, Context(cache=cache)))
        start += length
    torch.testing.assert_close(torch.cat(found, 1), whole)


def test_documents_of_one_row_stay_apart() -> None:
    """A second document sees its own whole groups; before there is one, nothing."""
    segment = (torch.arange(14) >= 7).long().expand(2, -1)
    built, given = part(causal=True), stream(14, segment=segment)
    before = built(given)
    assert_independent(
        lambda x: built(given.with_x(x)), given.x, (slice(None), slice(7, None)), (slice(None), slice(7))
    )
    torch.testing.assert_close(before[:, 7:12], built.out.bias.expand(2, 5, -1))  # its first group is 9 to 11
    assert torch.isfinite(before).all()


def test_implied_map_sums_to_one_and_shares_a_groups_weight() -> None:
    for causal in (False, True):
        with headwise.record() as maps:
            part(causal)(stream(11))
        (seen,) = maps.weights[()]
        assert seen.shape == (2, HEADS, 11, 11)
        torch.testing.assert_close(seen[..., 3:6].std(-1), torch.zeros(2, HEADS, 11, dtype=torch.float64))
        if causal:
            torch.testing.assert_close(seen.sum(-1), torch.ones(2, HEADS, 11, dtype=torch.float64))
            assert not seen.triu(1)[..., 1:].any()


def test_it_begins_near_exact_attention() -> None:
    """Of tokens that come three by three alike, the mean is each of them."""
    x = stream(4).x.repeat_interleave(3, 1)
    built = PARTS.parse({"kind": "compressed"}).build(BuildContext(WIDTH, HEADS, WIDTH)).double()
    q, k, v = built.qkv.split(built.qkv.project(x))
    k, v = (torch.cat((side[:, :, :1], side[:, :, ::3]), 2) for side in (k, v))
    mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    torch.testing.assert_close(built(x), built.out(mixed.transpose(1, 2).flatten(2)))
