"""Transformer-XL: sizes, and segment-level recurrence."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import headwise
from headwise import UserError
from headwise.blocks.segment_memory import SegmentMemory
from headwise.blocks.stack import count_parameters

LONG = torch.tensor([[5, 6, 7, 8, 9, 10, 11, 4], [11, 4, 10, 5, 9, 6, 8, 7]])


def build_tiny(**settings: Any) -> Any:
    torch.manual_seed(0)
    model = headwise.build("transformer-xl-tiny", **{"vocab": 12, "dropout": 0.0, "hidden_dropout": 0.0, **settings})
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    return model.double().eval()


def run_segments(model: Any, ids: Tensor, size: int) -> Tensor:
    left, logits = {}, []
    for segment in ids.split(size, 1):
        carried = SegmentMemory(model.memory_length, left)
        logits.append(model(segment, carried=carried))
        left = carried.next_states
    return torch.cat(logits, 1)


@pytest.mark.parametrize(
    ("name", "depth", "width", "hidden", "tables"),
    [
        ("wt103", 16, 410, 2100, 267_735 * 410 + 267_735 + 3 * 410 + 3),  # rows and biases of words and three clusters
        (
            "wt103-large",
            18,
            1024,
            4096,
            20_000 * 1024 + 20_000 * 256 + 160_000 * 64 + 67_735 * 16  # clusters, and their projections
            + 1024 * (1024 + 256 + 64 + 16) + 1024 * 1024  # the first has another one for outputs
            + 267_735 + 3 * 1024 + 3,
        ),
        ("enwik8", 12, 512, 2048, 204 * 512 + 204),
        ("enwik8-large", 24, 1024, 3072, 204 * 1024 + 204),
    ],
)  # fmt: skip
def test_parameter_counts_are_those_of_the_equations(
    name: str, depth: int, width: int, hidden: int, tables: int
) -> None:
    layer = 5 * width * width + 2 * width * hidden + hidden + width + 4 * width  # q, k, v, r, out; mlp; two norms
    model = headwise.build(f"transformer-xl-{name}", device="meta")
    assert count_parameters(model) == depth * layer + 2 * width + tables


@pytest.mark.parametrize(("name", "published"), [("wt103", 151e6), ("enwik8", 41e6), ("enwik8-large", 277e6)])
def test_parameter_counts_are_the_published_ones(name: str, published: float) -> None:
    found = count_parameters(headwise.build(f"transformer-xl-{name}", device="meta"))
    assert found == pytest.approx(published, abs=0.5e6)


def test_the_published_count_of_the_large_size_is_that_of_fewer_layers() -> None:
    """The paper has 257 million. The released settings of 18 layers have 285 million; with 16 layers and all
    projections tied they would have as many as the paper."""
    released = count_parameters(headwise.build("transformer-xl-wt103-large", device="meta"))
    assert released == pytest.approx(285e6, abs=0.5e6)
    tied = {"kind": "adaptive", "cutoffs": [20_000, 40_000, 200_000], "projections": "all", "tie_projections": "all"}
    model = headwise.build("transformer-xl-wt103-large", device="meta", depth=16, output_layer=tied)
    assert count_parameters(model) == pytest.approx(257e6, abs=0.5e6)


@torch.no_grad()
def test_segments_equal_one_pass_over_the_text() -> None:
    model = build_tiny()
    for size in (1, 3, 4, 8):
        torch.testing.assert_close(run_segments(model, LONG, size), model(LONG))


@torch.no_grad()
def test_a_short_memory_drops_old_tokens() -> None:
    """One layer that recalls two tokens sees two before its segment; two layers see four."""
    model, edited = build_tiny(memory_length=2, depth=1), LONG.clone()
    edited[:, 1] = 3
    before, after = run_segments(model, LONG, 2), run_segments(model, edited, 2)
    changed = (before - after).abs().amax(-1).amax(0) > 1e-12
    assert changed.tolist() == [False, True, True, True, False, False, False, False]
    deep = build_tiny(memory_length=2, depth=2)
    changed = (run_segments(deep, LONG, 2) - run_segments(deep, edited, 2)).abs().amax(-1).amax(0) > 1e-12
    assert changed.tolist() == [False, True, True, True, True, True, False, False]


@torch.no_grad()
def test_a_new_row_starts_with_empty_memory() -> None:
    model, first = build_tiny(), SegmentMemory(16)
    model(LONG[:, :4], carried=first)
    fresh = torch.tensor([False, True])
    found = model(LONG[:, 4:], carried=SegmentMemory(16, first.next_states, fresh))
    torch.testing.assert_close(found[1], model(LONG[1:, 4:])[0])
    torch.testing.assert_close(found[0], model(LONG[:1])[0, 4:])


def test_no_gradient_flows_into_the_memory() -> None:
    """Words of the first segment alone learn nothing from the second, which sees them all the same."""
    model = build_tiny(tie="none")
    first = SegmentMemory(model.memory_length)
    model(LONG[:1, :4], carried=first)
    second = SegmentMemory(model.memory_length, first.next_states)
    model(LONG[:1, 4:], labels=LONG[:1, 4:], carried=second).total.backward()
    learnt = model.decoder.embed.table.weight.grad.abs().sum(1) > 0
    assert learnt.nonzero().flatten().tolist() == sorted(LONG[0, 4:].tolist())
    assert all(not tensor.requires_grad for tensor in first.next_states.values())


@torch.no_grad()
def test_decoding_memory_has_bounded_size() -> None:
    model = build_tiny(memory_length=3)
    ids = LONG.repeat(1, 12)  # beyond the cache's first buffers
    state, logits = model.start(ids[:, :1]), []
    for tokens in ids[:, 1:].unbind(1):
        out, state = model.step(tokens, state)
        logits.append(out)
    torch.testing.assert_close(torch.stack(logits, 1), run_segments(model, ids, 1)[:, 1:])
    keys = [entry.buffers[0] for place, entry in state.cache.growing.items() if len(place) == 3]
    assert len(keys) == 2 and all(buffer.shape[2] <= 32 < ids.shape[1] for buffer in keys)


@torch.no_grad()
def test_prompts_of_different_lengths_in_one_batch() -> None:
    model, lengths = build_tiny(memory_length=6), (5, 2)
    prompts = torch.nn.utils.rnn.pad_sequence([LONG[row, :n] for row, n in enumerate(lengths)], batch_first=True)
    state = model.start(prompts)
    alone = [model.start(LONG[row : row + 1, :n]) for row, n in enumerate(lengths)]
    for tokens in LONG[:, 5:7].unbind(1):
        together, state = model.step(tokens, state)
        for row, own in enumerate(alone):
            found, alone[row] = model.step(tokens[row : row + 1], own)
            torch.testing.assert_close(together[row : row + 1], found)


def test_grouped_query_attention_with_memory_is_refused() -> None:
    with pytest.raises(UserError, match="key_value_heads and memory_length: one attention cannot have both"):
        build_tiny(key_value_heads=2)
