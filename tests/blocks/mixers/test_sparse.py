"""Sparse attention: equal to dense attention under the same mask, without a T x T matrix."""

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
from headwise.blocks.mixers.patterns import BigBirdGraph
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


def build_mixer(name: str, causal: bool = False, **settings: Any) -> Any:
    torch.manual_seed(0)
    config = PARTS.parse({"kind": name.split("-")[0], **KINDS.get(name, {}), **settings})
    built = config.build(BuildContext(WIDTH, HEADS, WIDTH, causal=causal)).double()
    assert isinstance(built, QKVMixer)
    return built


def make_stream(length: int, rows: int = 2, padded: bool = False, seed: int = 0) -> Stream:
    torch.manual_seed(seed)
    x = torch.randn(rows, length, WIDTH, dtype=torch.float64, requires_grad=True)
    lengths = torch.tensor([length, max(1, length - 7)])[:rows]
    return Stream.of(x, torch.arange(length) < lengths.unsqueeze(1) if padded else None)


def build_mask(name: str, length: int, causal: bool) -> Tensor:
    """True where a query attends to a key, written out pair by pair: (T, T)."""
    values = {"block": 64, "before": 0, "after": 0, **KINDS[name]}

    def is_visible(i: int, j: int) -> bool:
        kind = name.split("-")[0]
        if causal and j > i:
            return False
        if kind == "local":
            return -values["before"] <= j // values["block"] - i // values["block"] <= values["after"]
        if kind == "window":
            return -values["left"] <= j - i <= values["right"]
        return abs(i - j) < values["stride"] or (i - j) % values["stride"] == 0

    return torch.tensor([[is_visible(i, j) for j in range(length)] for i in range(length)])


def attend_densely(built: Any, inputs: Stream, visible: Tensor) -> Tensor:
    """Dense softmax attention under a mask, with the weights of `built`; `visible` broadcasts to (B, H, T, T)."""
    q, k, v = built.qkv.split(built.qkv.project(inputs.x))
    scores = (q @ k.mT / math.sqrt(built.head_width)).masked_fill(~visible, -torch.inf)
    return built.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


def compute_gradients(out: Tensor, built: Any, inputs: Stream, real: Tensor) -> list[Tensor]:
    outputs = out[real]
    loss = (outputs * torch.linspace(-1, 1, outputs.numel(), dtype=torch.float64).view_as(outputs)).sum()
    return [outputs, *torch.autograd.grad(loss, [inputs.x, *built.parameters()])]


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
@pytest.mark.parametrize("causal", [False, True], ids=["both ways", "causal"])
@pytest.mark.parametrize("name", CAUSAL)
def test_equal_to_dense_attention_under_the_mask(name: str, causal: bool, padded: bool, length: int) -> None:
    built, inputs = build_mixer(name, causal), make_stream(length, padded=padded)
    visible = build_mask(name, length, causal).expand(2, 1, -1, -1)
    real = torch.ones(2, length, dtype=torch.bool) if inputs.keep is None else inputs.keep
    # padding attends to itself, to avoid NaN
    visible = visible & real[:, None, None] | torch.eye(length, dtype=torch.bool)
    expected = compute_gradients(attend_densely(built, inputs, visible), built, inputs, real)
    for found, wanted in zip(compute_gradients(built(inputs), built, inputs, real), expected, strict=True):
        torch.testing.assert_close(found, wanted)


def build_graph_mask(built: Any, length: int) -> Tensor:
    """The token mask of the mixer's graph of blocks: (H, T, T)."""
    graph, extra = built.graph, built.extra
    last_block = graph.find_last_block(length, None, torch.device("cpu"))
    count = -(-length // graph.block)
    key_blocks = graph.choose_key_blocks(last_block, count, built.heads, (), built.training)
    visible = graph.count_edges(key_blocks, last_block)[0] > 0
    blocks = torch.arange(length) // graph.block
    visible = visible[:, blocks][:, :, blocks]
    return torch.nn.functional.pad(visible, (extra, 0, extra, 0), value=True)


BIGBIRD = [name for name in KINDS if "bigbird" in name]


@pytest.mark.parametrize("length", [5, 23, 50])
@pytest.mark.parametrize("name", BIGBIRD)
def test_a_graph_of_blocks_is_dense_attention_under_its_mask(name: str, length: int) -> None:
    built = build_mixer(name)
    inputs = make_stream(length + built.extra)
    real = torch.ones(inputs.x.shape[:2], dtype=torch.bool)
    expected = compute_gradients(attend_densely(built, inputs, build_graph_mask(built, length)), built, inputs, real)
    for found, wanted in zip(compute_gradients(built(inputs), built, inputs, real), expected, strict=True):
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("blocks", [1, 3, 40], ids=["a block", "some blocks", "a head"])
@pytest.mark.parametrize("name", BIGBIRD)
def test_gathering_in_pieces_changes_nothing(name: str, blocks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However small the pieces; and autograd saves no gathered tensor."""
    built = build_mixer(name)
    inputs = make_stream(50 + built.extra)
    real = torch.ones(inputs.x.shape[:2], dtype=torch.bool)
    wanted = compute_gradients(built(inputs), built, inputs, real)
    width = built.graph.width * built.graph.block + built.extra
    monkeypatch.setattr(block_sparse, "GATHERED_ON_CPU", blocks * width * built.head_width)
    storages: list[StorageWeakRef] = []

    def gather_and_note(*arguments: Any) -> Tensor:
        gathered = gather_blocks(*arguments)
        storages.append(StorageWeakRef(gathered.untyped_storage()))
        return gathered

    gather_blocks = block_sparse.gather_blocks
    monkeypatch.setattr(block_sparse, "gather_blocks", gather_and_note)
    out = built(inputs)
    assert len(storages) == 2 * 2 * HEADS * -(-25 // blocks)  # keys and values of each piece of each row and head
    assert all(storage.expired() for storage in storages)
    for found, expected in zip(compute_gradients(out, built, inputs, real), wanted, strict=True):
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("length", [9, 31, 50])
@pytest.mark.parametrize("name", BIGBIRD)
def test_padding_does_not_change_the_graph_of_a_text(name: str, length: int) -> None:
    """Its last block is that of the text, its random blocks are inside the text, and gradients are the same."""
    built = build_mixer(name)
    inputs, extra = make_stream(60 + built.extra), built.extra
    keep = torch.arange(60 + extra) < torch.tensor([[60 + extra], [length + extra]])
    alone = Stream.of(inputs.x[1:, : length + extra])
    real = torch.stack((torch.zeros_like(keep[0]), keep[1]))
    wanted = compute_gradients(built(alone), built, inputs, torch.ones(1, length + extra, dtype=torch.bool))
    for found, expected in zip(
        compute_gradients(built(Stream.of(inputs.x, keep)), built, inputs, real), wanted, strict=True
    ):
        torch.testing.assert_close(found, expected)


def test_the_graph_is_that_of_the_paper() -> None:
    """A window of three, two global and three random blocks, which differ by head, layer and seed; any block reaches
    any other in at most two steps, through the global blocks."""
    count, heads = 30, 4
    last_block = torch.tensor([count - 1])

    def count_edges(graph: BigBirdGraph, path: tuple[Any, ...] = ("encoder", 0, 0)) -> Tensor:
        return graph.count_edges(graph.choose_key_blocks(last_block, count, heads, path, False), last_block)[0]

    edges = count_edges(BigBirdGraph())
    assert (edges[:, 2:-2].sum(-1) == 3 + 2 + 3).all() and edges.max() == 1
    assert edges[:, [0, -1]].all() and edges[:, :, [0, -1]].all()
    assert ((edges.float() @ edges.float()) > 0).all()
    middle = edges[:, 1:-1, 1:-1]
    others = [count_edges(BigBirdGraph(seed=1)), count_edges(BigBirdGraph(), ("encoder", 1, 0)), edges.roll(1, 0)]
    assert all((middle != other[:, 1:-1, 1:-1]).any() for other in others)
    assert torch.equal(edges, count_edges(BigBirdGraph(), ("encoder", 0, 0)))
    # Each far block is drawn about as often as any other.
    graph, totals = BigBirdGraph(), torch.zeros(count)
    for layer in range(100):
        totals += count_edges(graph, (layer,))[:, 15].sum(0)
    far = torch.cat((totals[1:14], totals[17:-1]))
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
def test_a_pattern_of_all_pairs_is_full_attention(settings: dict[str, Any]) -> None:
    built, inputs = build_mixer(settings.pop("kind"), **settings), make_stream(29)
    full = Attention(WIDTH, HEADS).double()
    full.load_state_dict(built.state_dict(), strict=False)
    torch.testing.assert_close(built(inputs), full(inputs))


@pytest.mark.parametrize("name", CAUSAL)
def test_decoding_step_by_step_equals_one_forward_pass(name: str) -> None:
    """After a prompt, token by token and a few at once."""
    built, inputs = build_mixer(name, causal=True).eval(), make_stream(50)
    built.double()
    whole, cache, found, start = built(inputs), DecodingCache(2), [], 0
    for length in (20, 1, 1, 1, 7, *(1,) * 20):
        piece = Stream.of(inputs.x[:, start : start + length], start=start)
        found.append(built(piece, Context(cache=cache)))
        start += length
    torch.testing.assert_close(torch.cat(found, 1), whole)


def test_a_decoding_step_computes_few_keys() -> None:
    """Those that the newest token attends to, however many are cached."""
    for name, settings, few in (("window", {"left": 3}, 4), ("local", {"block": 8}, 6), ("strided", {"stride": 8}, 20)):
        built, cache, selected = build_mixer(name, causal=True, **settings), DecodingCache(1), []
        built._select_keys = lambda inputs, select=built._select_keys, selected=selected: (
            selected.append(select(inputs)) or selected[-1]
        )
        for start, length in ((0, 101), (101, 1)):
            built(Stream.of(torch.zeros(1, length, WIDTH).double(), start=start), Context(cache=cache))
        assert [inputs.k.shape[2] for inputs in selected] == [few]


@pytest.mark.parametrize("name", CAUSAL)
def test_packed_documents_do_not_attend_to_each_other(name: str) -> None:
    built, inputs = build_mixer(name, causal=True), make_stream(46)
    segment = (torch.arange(46) >= torch.tensor([[17], [30]])).long()
    packed = built(Stream(inputs.x, inputs.pos, segment=segment))
    visible = build_mask(name, 46, True) & (segment.unsqueeze(2) == segment.unsqueeze(1))
    torch.testing.assert_close(packed, attend_densely(built, inputs, visible.unsqueeze(1)))


class Largest(TorchDispatchMode):
    """The number of elements of the largest tensor that an operation returns."""

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
def test_no_tensor_is_as_large_as_all_pairs(settings: dict[str, Any], padded: bool) -> None:
    length = 1024
    built, inputs = build_mixer(**{"name": settings["kind"], **settings}), make_stream(length, rows=1)
    if padded:
        inputs = Stream.of(inputs.x, torch.arange(length).unsqueeze(0) < length - 3)
    with Largest() as largest:
        built(inputs).sum().backward()
    assert largest.numbers < length**2 / 2


def test_the_recorded_map_gives_the_outputs() -> None:
    for name in KINDS:
        built, inputs = build_mixer(name), make_stream(40, rows=1)
        with headwise.record() as maps:
            out = built(inputs)
        (attention,), (exact,) = maps.weights[()], maps.exact[()]
        v = built.qkv.split(built.qkv.project(inputs.x))[2]
        torch.testing.assert_close(built.out((attention @ v).transpose(1, 2).flatten(2)), out)
        assert (attention == 0).any() and not (exact == 0).any()


def test_a_decoder_is_causal_or_refused() -> None:
    full = Attention(WIDTH, HEADS, score_mods=(Causal(),)).double()
    built, inputs = build_mixer("window", causal=True, left=50, right=9), make_stream(20)
    full.load_state_dict(built.state_dict(), strict=False)
    torch.testing.assert_close(built(inputs), full(inputs))
    with pytest.raises(UserError, match="bigbird: would see the future in a decoder"):
        build_mixer("bigbird", causal=True)
    with pytest.raises(UserError, match=r"mixer\.window: a window has the block itself"):
        headwise.build("bert-tiny", vocab=12, mixer={"kind": "bigbird", "window": 2})


def test_bfloat16_and_the_meta_device() -> None:
    """The meta device is where costs are counted."""
    for name in KINDS:
        built = build_mixer(name)
        low = built.bfloat16()(make_stream(50).x.detach().bfloat16())
        assert low.dtype == torch.bfloat16 and torch.isfinite(low).all()
        with torch.device("meta"):
            meta = PARTS.parse({"kind": name.split("-")[0], **KINDS[name]}).build(BuildContext(WIDTH, HEADS, WIDTH))
            assert meta(torch.zeros(1, 50, WIDTH)).shape == (1, 50, WIDTH)
