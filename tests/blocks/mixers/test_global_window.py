"""Longformer's attention: windows, global tokens with projections of their own, and texts in blocks."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

import headwise
from headwise import UserError
from headwise.blocks.mixers.global_window import GlobalWindowAttention, GlobalWindowConfig
from headwise.blocks.stream import Context, Stream
from headwise.testing import check_part


def build_attention(global_tokens: int | str) -> GlobalWindowAttention:
    torch.manual_seed(0)
    return GlobalWindowAttention(2, 3, global_tokens, width=12, heads=3).double().eval()


def compute_expected(attention: GlobalWindowAttention, x: Tensor, keep: Tensor, count: int) -> Tensor:
    """The attention of one row with `count` global tokens, token by token."""
    q, k, v = (part[0] for part in attention.qkv.split(attention.qkv.project(x[None])))  # (H, T, D)
    global_q, global_k, global_v = (
        part[0] for part in attention.global_qkv.split(attention.global_qkv.project(x[None]))
    )
    index = torch.arange(len(x))
    rows = []
    for i in range(len(x)):
        near = (index >= i - 2) & (index <= i + 3)
        keys = keep if i < count else keep & (near | (index < count))
        query, key, value = (global_q, global_k, global_v) if i < count else (q, k, v)
        weights = (query[:, i : i + 1] @ key[:, keys].mT / 2).softmax(-1)  # head_width is 4
        rows.append((weights @ value[:, keys]).flatten())
    return attention.out(torch.stack(rows))


@pytest.mark.parametrize("global_tokens", [0, 1, 3])
@pytest.mark.parametrize("length", [9, 131])
@torch.no_grad()
def test_tokens_attend_to_their_window_and_to_global_tokens(global_tokens: int, length: int) -> None:
    attention, x = build_attention(global_tokens), torch.randn(2, length, 12, dtype=torch.float64)
    keep = torch.ones(2, length, dtype=torch.bool)
    keep[1, length - 5 :] = False
    outputs = attention(Stream.of(x, keep), Context())
    for row in range(2):
        expected = compute_expected(attention, x[row], keep[row], global_tokens)
        torch.testing.assert_close(outputs[row][keep[row]], expected[keep[row]])


@pytest.mark.parametrize("length", [9, 131])
@torch.no_grad()
def test_the_first_text_of_each_row_is_global(length: int) -> None:
    attention, x = build_attention("first_text"), torch.randn(4, length, 12, dtype=torch.float64)
    keep = torch.arange(length) < torch.tensor([[length], [length - 1], [6], [4]])
    ends = torch.tensor([[2], [6], [0], [3]])  # of the first text: the last row has no other
    types = (torch.arange(length) > ends).long()
    outputs = attention(replace(Stream.of(x, keep), token_types=types), Context())
    for row, count in enumerate(ends.flatten().tolist()):
        expected = compute_expected(attention, x[row], keep[row], count)
        torch.testing.assert_close(outputs[row][keep[row]], expected[keep[row]])


@torch.no_grad()
def test_any_encoder_numbers_the_texts_that_the_part_reads() -> None:
    """The question attends to all of a text that is longer than the windows of all layers, and the text to it."""
    torch.manual_seed(0)
    kind = {"kind": "longformer", "left": 1, "right": 1, "global_tokens": "first_text"}
    model = headwise.build("bert-tiny", vocab=20, mixer=kind, depth=1).eval()
    with headwise.record() as maps:
        model(torch.tensor([[5, 6, 2, 7, 8, 9, 10, 2], [5, 2, 7, 8, 9, 10, 11, 2]]))
    (weights,) = maps.select("encoder", 0).values()
    # BOS stands before the question, and is global, too
    assert bool((weights[0, :, :3] > 0).all()) and bool((weights[0, :, :, :3] > 0).all())
    assert not weights[0, :, 3, 5:].any() and not weights[1, :, 2, 4:].any()


@pytest.mark.parametrize("global_tokens", [0, 2, "first_text"])
def test_it_is_what_it_declares(global_tokens: int | str) -> None:
    check_part(GlobalWindowConfig(left=1, right=1, global_tokens=global_tokens))


@torch.no_grad()
def test_maps_of_global_tokens_are_those_of_their_projection() -> None:
    kind = {"kind": "longformer", "left": 1, "right": 1, "global_tokens": 1}
    model = headwise.build("bert-tiny", vocab=20, mixer=kind).eval()
    with headwise.record() as maps:
        model(torch.tensor([[5, 6, 7, 8, 9, 2]]))
    (weights,) = maps.select("encoder", 0).values()
    torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))
    assert bool((weights[0, :, 0] > 0).all())  # the global token attends to all
    assert bool((weights[0, :, 4, 0] > 0).all()) and not weights[0, :, 4, 1:3].any()


def test_a_decoder_refuses_it() -> None:
    with pytest.raises(UserError, match="longformer: would see the future"):
        headwise.build("gpt2-tiny", vocab=20, mixer="longformer")
