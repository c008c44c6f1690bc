"""The decoding cache: growth, selection of rows, entries by path."""

import torch

from headwise.blocks.attention.multihead import Attention
from headwise.blocks.attention.score_mods import Causal
from headwise.blocks.cache import DecodingCache
from headwise.blocks.positions.alibi import Alibi
from headwise.blocks.stream import Cache, Context, Stream

close = torch.testing.assert_close


def test_growing_keeps_everything_past_the_first_buffers() -> None:
    cache, pieces = DecodingCache(rows=2, capacity=4), torch.randn(40, 2, 3, 1, 5).unbind(0)
    for count, piece in enumerate(pieces, start=1):
        keys, values = cache.extend(("a",), 2, piece, -piece)
        expected = torch.cat(pieces[:count], dim=2)
        assert torch.equal(keys, expected) and torch.equal(values, -expected)


def test_selection_reorders_repeats_and_drops_rows() -> None:
    cache, first, second = DecodingCache(rows=4, beams=2, capacity=2), torch.randn(4, 1, 3), torch.randn(2, 2, 3)
    cache.extend((0,), 1, first)
    cache.compute_once((1,), lambda: (torch.tensor([[10.0], [20.0]]),))
    cache.put_state((2,), first[:, 0])
    rows = torch.tensor([3, 3])
    cache.select(rows)
    (grown,) = cache.extend((0,), 1, second)
    assert torch.equal(grown, torch.cat((first[rows], second), dim=1))
    assert torch.equal(cache.get_state((2,), torch.Tensor), first[rows, 0])
    assert cache.compute_once((1,), tuple)[0].tolist() == [[20.0]]  # one row a source: the first one went


def test_values_of_a_source_are_computed_once() -> None:
    cache, made = DecodingCache(rows=1), []
    for _ in range(3):
        cache.compute_once(("x",), lambda: made.append(1) or torch.ones(1))
    assert made == [1]


def test_the_null_cache_stores_nothing() -> None:
    cache, x = Cache(), torch.randn(2, 3)
    cache.extend((0,), 1, x)
    cache.put_state((0,), x)
    assert cache.extend((0,), 1, x)[0] is x
    assert cache.get_state((0,), lambda: torch.zeros(1)).tolist() == [0.0]


def test_one_module_at_two_paths_has_two_cache_entries() -> None:
    shared = Attention(8, heads=2, score_mods=[Alibi(2), Causal()]).double().eval()
    x = torch.randn(2, 5, 8).double()
    ctx = Context(cache=DecodingCache(rows=2))
    outs = []
    for t in range(5):
        stream = Stream.of(x[:, t : t + 1], start=t)
        outs.append(shared(stream.with_x(shared(stream, ctx.at(0))), ctx.at(1)))
    close(torch.cat(outs, dim=1), shared(shared(x)))


def test_padding_masks_and_segments_are_cached() -> None:
    attention = Attention(8, heads=2, score_mods=[Causal()]).double().eval()
    x, keep = torch.randn(2, 6, 8).double(), torch.tensor([[True] * 6, [False, False, True, True, True, True]])
    segment = torch.tensor([[0, 0, 1, 1, 1, 2], [0, 0, 0, 0, 1, 1]])
    pos = torch.arange(6)
    whole = attention(Stream(x, pos, keep, segment=segment))
    ctx = Context(cache=DecodingCache(rows=2))
    for start, end in ((0, 3), (3, 4), (4, 6)):
        cut = slice(start, end)
        out = attention(Stream(x[:, cut], pos[cut], keep[:, cut], segment=segment[:, cut]), ctx)
        close(out, whole[:, cut])
