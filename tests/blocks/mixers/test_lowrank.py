"""Linformer attention: its equation, the case in which it is exact, its map, and sharing of matrices."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

import headwise
from headwise import UserError
from headwise.blocks.attention.multihead import Attention
from headwise.blocks.mixers.lowrank import LengthProjection, LowRankAttention
from headwise.blocks.stream import Stream
from headwise.runs.checkpoint import restore, unique_tensors

WIDTH, HEADS, LENGTH = 8, 2, 6
close = torch.testing.assert_close


def make_texts(length: int = LENGTH) -> Tensor:
    return torch.randn(2, length, WIDTH, dtype=torch.float64)


@pytest.mark.parametrize("matrices", [1, HEADS])
@torch.no_grad()
def test_it_equals_its_equation_with_the_first_columns_of_its_matrices(matrices: int) -> None:
    keys, values = (LengthProjection(3, 9, matrices) for _ in range(2))
    part, x = LowRankAttention(WIDTH, HEADS, keys=keys, values=values).double(), make_texts()
    q, k, v = part.qkv.split(part.qkv.project(x))
    heads = []
    for head in range(HEADS):
        e, f = (summary.weight[head % matrices, :, :LENGTH] for summary in (keys, values))
        weights = (q[:, head] @ (e @ k[:, head]).mT / math.sqrt(WIDTH / HEADS)).softmax(-1)
        heads.append(weights @ (f @ v[:, head]))
    close(part(x), part.out(torch.cat(heads, dim=-1)))


@torch.no_grad()
def test_with_identities_it_is_attention() -> None:
    full, part = Attention(WIDTH, HEADS).double(), LowRankAttention(WIDTH, HEADS, keys=LengthProjection(6, 6)).double()
    x = make_texts()
    assert part.load_state_dict(full.state_dict(), strict=False).unexpected_keys == []
    part.keys.weight.copy_(torch.eye(6))
    with headwise.record() as maps:
        close(part(x), full(x))
    close(maps.weights[()][0], maps.exact[()][0])


@torch.no_grad()
def test_the_recorded_map_gives_the_outputs() -> None:
    part, x = (
        LowRankAttention(WIDTH, HEADS, keys=LengthProjection(3, 9, HEADS), values=LengthProjection(3, 9)).double(),
        make_texts(),
    )
    keep = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])
    with headwise.record() as maps:
        out = part(Stream.of(x, keep))
    _, _, v = part.qkv.split(part.qkv.project(x))
    mixed = maps.weights[()][0] @ v  # (B, H, T, T) and (B, H, T, D)
    close(part.out(mixed.transpose(1, 2).flatten(2)), out)
    assert not maps.weights[()][0][1, :, :, 4:].any()


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shared", [False, True])
@torch.no_grad()
def test_outputs_are_the_same_with_and_without_a_recorder(shared: bool, bias: bool, padded: bool) -> None:
    """Without a recorder the text is projected along its length before keys and values are computed."""
    part = LowRankAttention(
        WIDTH, HEADS, keys=LengthProjection(3, 9), values=None if shared else LengthProjection(3, 9), bias=bias
    )
    keep = torch.tensor([[True] * 6, [True] * 4 + [False] * 2]) if padded else None
    stream = Stream.of(make_texts(), keep)
    unrecorded = part.double()(stream)
    with headwise.record():
        close(unrecorded, part(stream))


def test_mistakes_are_named() -> None:
    with pytest.raises(
        UserError, match="linformer: has 9 positions, too few for 10 tokens; raise its `max_length` or cut"
    ):
        LowRankAttention(WIDTH, HEADS, keys=LengthProjection(3, 9))(torch.zeros(1, 10, WIDTH))
    with pytest.raises(UserError, match="linformer: would see the future in a decoder"):
        headwise.build("gpt2-tiny", vocab=12, mixer="linformer")
    with pytest.raises(UserError, match=r"mixer: .*a rank of 8 exceeds `max_length` = 4; lower it"):
        headwise.build("bert-tiny", vocab=12, mixer={"kind": "linformer", "rank": 8, "max_length": 4})
    with pytest.raises(UserError, match="positions: LowRankAttention forms no scores that T5Bias could change"):
        headwise.build("bert-tiny", vocab=12, mixer="linformer", positions="t5")


def build_model(sharing: str, name: str = "bert-tiny", **settings: Any) -> Any:
    mixer = {"kind": "linformer", "rank": 4, "max_length": 64, "sharing": sharing}
    return headwise.build(name, vocab=12, mixer=mixer, task="masked", **settings)


@pytest.mark.parametrize(("sharing", "count"), [("none", 288), ("headwise", 24), ("key-value", 12), ("layerwise", 1)])
def test_number_of_matrices_in_twelve_layers_of_twelve_heads(sharing: str, count: int) -> None:
    model = build_model(sharing, "bert-base", device="meta")
    counts = {id(m.weight): len(m.weight) for m in model.modules() if isinstance(m, LengthProjection)}
    assert sum(counts.values()) == count


def test_a_matrix_shared_by_all_layers_is_stored_once_and_shared_after_loading() -> None:
    model, fresh = build_model("layerwise"), build_model("layerwise")
    stored = unique_tensors(model)
    assert sum(name.endswith(("keys.weight", "values.weight")) for name in stored) == 1
    restore(fresh, stored, "here")
    first, last = (layer.parts[0] for layer in fresh.encoder.stack.layers)
    assert first.keys is first.values is last.keys is last.values
    assert torch.equal(last.values.weight, model.encoder.stack.layers[0].parts[0].keys.weight)
