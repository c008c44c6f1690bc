"""Attention that sees some keys: equal to dense attention under the same mask, without a matrix of all pairs."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

import headwise
from headwise import UserError
from headwise.blocks.attention.multihead import Attention
from headwise.blocks.attention.score_mods import Causal
from headwise.blocks.cache import DecodingCache
from headwise.blocks.mixers import block_sparse
from headwise.blocks.mixers.patterns import Graph
from headwise.blocks.mixers.qkv_mixer import QKVMixer
from headwise.blocks.part import BuildContext
from headwise.blocks.stream import Context, Stream
from headwise.blocks.tables import PARTS

WIDTH, HEADS = 8, 2
KINDS: dict[str, dict[str, Any]] = {
    "local": {"block": 4},
    "local-around": {"block": 4, "before": 1, "after": 1},
    "local-uneven": {"block": 3, "before": 2},
    "window": {"left": 3, "right": 2},
    "window-left": {"left": 9, "right": 0},
    "strided": {"stride": 4},
    "bigbird": {"block": 2, "random": 1},
    "bigbird-wide": {"block": 2, "random": 2, "window": 5, "first": 2, "last": 0},
    "bigbird-extra": {"block": 2, "random": 1, "first": 0, "last": 1, "extra": 3},
}
CAUSAL = [name for name in KINDS if "bigbird" not in name]
LENGTHS = (1, 5, 16, 23, 50)


def part(name: str, causal: bool = False, **settings: Any) -> Any:
    torch.manual_seed(0)
    config = PARTS.parse({"kind": name.split("-")[0], **KINDS.get(name, {}), **settings})
    built = config.build(BuildContext(WIDTH, HEADS, WIDTH, causal=causal)).double()
    assert isinstance(built, QKVMixer)
    return built


def stream(length: int, rows: int = 2, padded: bool = False, seed: int = 0) -> Stream:
    torch.manual_seed(seed)
    x = torch.randn(rows, length, WIDTH, dtype=torch.float64, requires_grad=True)
    lengths = torch.tensor([length, max(1, length - 7)])[:rows]
    return Stream.of(x, torch.arange(length) < lengths.unsqueeze(1) if padded else None)


def rule(name: str, length: int, causal: bool) -> Tensor:
    """Which key each query sees, written out pair by pair: (T, T)."""
    own = {"block": 64, "before": 0, "after": 0, **KINDS[name]}

    def sees(i: int, j: int) -> bool:
        kind = name.split("-")[0]
        if causal and j > i:
            return False
        if kind == "local":
            return -own["before"] <= j // own["block"] - i // own["block"] <= own["after"]
        if kind == "window":
            return -own["left"] <= j - i <= own["right"]
        return abs(i - j) < own["stride"] or (i - j) % own["stride"] == 0

    return torch.tensor([[sees(i, j) for j in range(length)] for i in range(length)])


def dense(built: Any, given: Stream, seen: Tensor) -> Tensor:
    """softmax over the seen keys with the weights of `built`; `seen` is broadcastable with (B, H, T, T)."""
    q, k, v = built.qkv.split(built.qkv.project(given.x))
    scores = (q @ k.mT / math.sqrt(built.head_width)).masked_fill(~seen, -torch.inf)
    return built.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


def with_gradients(out: Tensor, built: Any, given: Stream, real: Tensor) -> list[Tensor]:
    chosen = out[real]
    loss = (chosen * torch.linspace(-1, 1, chosen.numel(), dtype=torch.float64).view_as(chosen)).sum()
    return [chosen, *torch.autograd.grad(loss, [given.x, *built.parameters()])]


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
@pytest.mark.parametrize("causal", [False, True], ids=["both ways", "causal"])
@pytest.mark.parametrize("name", CAUSAL)
def test_equal_to_dense_attention_under_the_rule(name: str, causal: bool, padded: bool, length: int) -> None:
    built, given = part(name, causal), stream(length, padded=padded)
    seen = rule(name, length, causal).expand(2, 1, -1, -1)
    real = torch.ones(2, length, dtype=torch.bool) if given.keep is None else given.keep
    seen = seen & real[:, None, None] | torch.eye(length, dtype=torch.bool)  # padding sees itself, lest it be NaN
    expected = with_gradients(dense(built, given, seen), built, given, real)
    for found, wanted in zip(with_gradients(built(given), built, given, real), expected, strict=True):
        torch.testing.assert_close(found, wanted)


def graph_of(built: Any, length: int) -> Tensor:
    """Which token sees which, from what the mixer says of its graph: (H, T, T)."""
    graph, extra = built.graph, built.extra
    final = graph.final(length, None, torch.device("cpu"))
    count = -(-length // graph.block)
    seen = graph.counts(graph.seen(final, count, built.heads, (), built.training), final)[0] > 0
    blocks = torch.arange(length) // graph.block
    seen = seen[:, blocks][:, :, blocks]
    return torch.nn.functional.pad(seen, (extra, 0, extra, 0), value=True)


BIRDS = [name for name in KINDS if "bigbird" in name]


@pytest.mark.parametrize("length", [5, 23, 50])
@pytest.mark.parametrize("name", BIRDS)
def test_a_graph_of_blocks_is_dense_attention_under_its_mask(name: str, length: int) -> None:
    built = part(name)
    given = stream(length + built.extra)
    real = torch.ones(given.x.shape[:2], dtype=torch.bool)
    expected = with_gradients(dense(built, given, graph_of(built, length)), built, given, real)
    for found, wanted in zip(with_gradients(built(given), built, given, real), expected, strict=True):
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("blocks", [1, 3, 40], ids=["a block", "some blocks", "a head"])
@pytest.mark.parametrize("name", BIRDS)
def test_a_graph_of_blocks_in_pieces_is_the_whole_one(name: str, blocks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However small the pieces, and autograd keeps nothing that was put together for one."""
    built = part(name)
    given = stream(50 + built.extra)
    real = torch.ones(given.x.shape[:2], dtype=torch.bool)
    wanted = with_gradients(built(given), built, given, real)
    width = built.graph.width * built.graph.block + built.extra
    monkeypatch.setattr(block_sparse, "PIECE", blocks * width * built.head_width)
    made: list[StorageWeakRef] = []

    def gathered(*asked: Any) -> Tensor:
        found = choosing_gathered(*asked)
        made.append(StorageWeakRef(found.untyped_storage()))
        return found

    choosing_gathered = block_sparse.gathered
    monkeypatch.setattr(block_sparse, "gathered", gathered)
    out = built(given)
    assert len(made) == 2 * 2 * HEADS * -(-25 // blocks)  # keys and values of each piece of each row and head
    assert all(storage.expired() for storage in made)
    for found, expected in zip(with_gradients(out, built, given, real), wanted, strict=True):
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("length", [9, 31, 50])
@pytest.mark.parametrize("name", BIRDS)
def test_a_text_has_the_same_graph_among_longer_ones(name: str, length: int) -> None:
    """Its last block is its own, its random blocks are inside it, and gradients go the same way."""
    built = part(name)
    given, extra = stream(60 + built.extra), built.extra
    keep = torch.arange(60 + extra) < torch.tensor([[60 + extra], [length + extra]])
    alone = Stream.of(given.x[1:, : length + extra])
    real = torch.stack((torch.zeros_like(keep[0]), keep[1]))
    wanted = with_gradients(built(alone), built, given, torch.ones(1, length + extra, dtype=torch.bool))
    for found, expected in zip(
        with_gradients(built(Stream.of(given.x, keep)), built, given, real), wanted, strict=True
    ):
        torch.testing.assert_close(found, expected)


def test_a_graph_of_blocks_is_that_of_the_paper() -> None:
    """Three neighbours, two ends and three random blocks, other ones for each head, layer and seed; from any block to
    any other it is at most two steps, through the ends."""
    count, heads = 30, 4
    final = torch.tensor([count - 1])

    def drawn(graph: Graph, place: tuple[Any, ...] = ("encoder", 0, 0)) -> Tensor:
        return graph.counts(graph.seen(final, count, heads, place, False), final)[0]

    seen = drawn(Graph())
    assert (seen[:, 2:-2].sum(-1) == 3 + 2 + 3).all() and seen.max() == 1
    assert seen[:, [0, -1]].all() and seen[:, :, [0, -1]].all()
    assert ((seen.float() @ seen.float()) > 0).all()
    middle = seen[:, 1:-1, 1:-1]
    others = [drawn(Graph(seed=1)), drawn(Graph(), ("encoder", 1, 0)), seen.roll(1, 0)]
    assert all((middle != other[:, 1:-1, 1:-1]).any() for other in others)
    assert torch.equal(seen, drawn(Graph(), ("encoder", 0, 0)))
    # Each far block is drawn about as often as any other.
    graph, often = Graph(), torch.zeros(count)
    for layer in range(100):
        often += drawn(graph, (layer,))[:, 15].sum(0)
    far = torch.cat((often[1:14], often[17:-1]))
    assert (far / (100 * heads)).sub(3 / len(far)).abs().max() < 0.05


@pytest.mark.parametrize(
    "settings",
    [
        {"kind": "local", "block": 5, "before": 5, "after": 5},
        {"kind": "local", "block": 64},
        {"kind": "window", "left": 40, "right": 40},
        {"kind": "strided", "stride": 1},
        {"kind": "bigbird", "block": 3, "random": 20},
        {"kind": "bigbird", "block": 3, "random": 0, "window": 31},
        {"kind": "bigbird", "block": 3, "random": 3, "variant": "transformers"},
    ],
    ids=str,
)
def test_whoever_sees_everything_is_full_attention(settings: dict[str, Any]) -> None:
    built, given = part(settings.pop("kind"), **settings), stream(29)
    full = Attention(WIDTH, HEADS).double()
    full.load_state_dict(built.state_dict(), strict=False)
    torch.testing.assert_close(built(given), full(given))


@pytest.mark.parametrize("name", CAUSAL)
def test_steps_give_what_the_whole_gives(name: str) -> None:
    """After a prompt, token by token and a few at once."""
    built, given = part(name, causal=True).eval(), stream(50)
    built.double()
    whole, cache, found, start = built(given), DecodingCache(2), [], 0
    for length in (20, 1, 1, 1, 7, *(1,) * 20):
        piece = Stream.of(given.x[:, start : start + length], start=start)
        found.append(built(piece, Context(cache=cache)))
        start += length
    torch.testing.assert_close(torch.cat(found, 1), whole)


def test_a_step_looks_at_few_keys() -> None:
    """Those that the newest token sees, however many there are."""
    for name, settings, few in (("window", {"left": 3}, 4), ("local", {"block": 8}, 6), ("strided", {"stride": 8}, 20)):
        built, cache, looks = part(name, causal=True, **settings), DecodingCache(1), []
        built._latest = lambda inputs, latest=built._latest, looks=looks: looks.append(latest(inputs)) or looks[-1]
        for start, length in ((0, 101), (101, 1)):
            built(Stream.of(torch.zeros(1, length, WIDTH).double(), start=start), Context(cache=cache))
        assert [inputs.k.shape[2] for inputs in looks] == [few]


@pytest.mark.parametrize("name", CAUSAL)
def test_documents_that_share_a_row_do_not_see_one_another(name: str) -> None:
    built, given = part(name, causal=True), stream(46)
    segment = (torch.arange(46) >= torch.tensor([[17], [30]])).long()
    packed = built(Stream(given.x, given.pos, segment=segment))
    seen = rule(name, 46, True) & (segment.unsqueeze(2) == segment.unsqueeze(1))
    torch.testing.assert_close(packed, dense(built, given, seen.unsqueeze(1)))


class Largest(TorchDispatchMode):
    """How many numbers the largest tensor has that some operation gives."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else (out,):
            if isinstance(tensor, Tensor):
                self.numbers = max(self.numbers, tensor.untyped_storage().nbytes() // tensor.element_size())
        return out


@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
@pytest.mark.parametrize(
    "settings",
    [
        {"kind": "local", "block": 8, "before": 1},
        {"kind": "window", "left": 8, "right": 8},
        {"kind": "strided", "stride": 32},
        {"kind": "bigbird", "block": 8, "random": 1},
    ],
    ids=lambda settings: settings["kind"],
)
def test_no_matrix_of_all_pairs_is_made(settings: dict[str, Any], padded: bool) -> None:
    length = 1024
    built, given = part(**{"name": settings["kind"], **settings}), stream(length, rows=1)
    if padded:
        given = Stream.of(given.x, torch.arange(length).unsqueeze(0) < length - 3)
    with Largest() as largest:
        built(given).sum().backward()
    assert largest.numbers < length**2 / 2


def test_maps_of_whoever_looks_are_those_of_the_pattern() -> None:
    for name in KINDS:
        built, given = part(name), stream(40, rows=1)
        with headwise.record() as maps:
            out = built(given)
        (seen,), (exact,) = maps.weights[()], maps.exact[()]
        v = built.qkv.split(built.qkv.project(given.x))[2]
        torch.testing.assert_close(built.out((seen @ v).transpose(1, 2).flatten(2)), out)
        assert (seen == 0).any() and not (exact == 0).any()


def test_a_decoder_hides_the_future_or_refuses() -> None:
    full = Attention(WIDTH, HEADS, score_mods=(Causal(),)).double()
    built, given = part("window", causal=True, left=50, right=9), stream(20)
    full.load_state_dict(built.state_dict(), strict=False)
    torch.testing.assert_close(built(given), full(given))
    with pytest.raises(UserError, match="bigbird: would see the future in a decoder"):
        part("bigbird", causal=True)
    with pytest.raises(UserError, match=r"mixer\.window: a window has the block itself"):
        headwise.build("bert-tiny", vocab=12, mixer={"kind": "bigbird", "window": 2})


def test_half_precision_and_no_contents() -> None:
    """In bfloat16 it runs as it is; on the meta device too, where costs are counted."""
    for name in KINDS:
        built = part(name)
        low = built.bfloat16()(stream(50).x.detach().bfloat16())
        assert low.dtype == torch.bfloat16 and torch.isfinite(low).all()
        with torch.device("meta"):
            meta = PARTS.parse({"kind": name.split("-")[0], **KINDS[name]}).build(BuildContext(WIDTH, HEADS, WIDTH))
            assert meta(torch.zeros(1, 50, WIDTH)).shape == (1, 50, WIDTH)
