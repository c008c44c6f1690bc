"""Funnel-Transformer: the score of relative positions and token types, pooling and upsampling."""

from __future__ import annotations

import math

import pytest
import torch

import headwise
from headwise import UserError
from headwise.blocks.attention.multihead import AttentionConfig
from headwise.blocks.attention.score_mods import AttentionInputs, AttentionLayout
from headwise.blocks.funnel import SequencePool
from headwise.blocks.part import BuildContext
from headwise.blocks.positions.absolute import build_sinusoids
from headwise.blocks.positions.funnel import ANY_TYPE, FunnelRelative
from headwise.blocks.record import record
from headwise.blocks.stream import Context, Stream
from headwise.catalog import MODELS
from headwise.testing import assert_parity

WIDTH, HEADS, HEAD_WIDTH = 10, 2, 3


def test_the_score_is_the_formula() -> None:
    torch.manual_seed(0)
    mod = FunnelRelative(WIDTH, HEADS, HEAD_WIDTH).double()
    q, k = (torch.randn(1, HEADS, count, HEAD_WIDTH, dtype=torch.float64) for count in (3, 5))
    query_pos, key_pos = torch.tensor([0, 1, 3]), torch.arange(5)
    query_types, key_types = torch.tensor([[ANY_TYPE, 0, 1]]), torch.tensor([[ANY_TYPE, 0, 0, 1, 1]])
    layout = AttentionLayout(3, 5, query_pos, key_pos, query_types=query_types, key_types=key_types)
    scores = mod.edit_scores(torch.zeros(1, HEADS, 3, 5, dtype=torch.float64), AttentionInputs(q, k, k, 0.5, layout))
    for head in range(HEADS):
        kernel = mod.kernel[:, head]  # (C, D)
        for i in range(3):
            for j in range(5):
                expected = mod.content[head] @ k[0, head, j]
                if i and j:
                    distance = build_sinusoids(query_pos[i] - key_pos[j], WIDTH, halves=True)
                    same = int(query_types[0, i] == key_types[0, j])
                    expected = expected + (q[0, head, i] + mod.distance[head]) @ (distance @ kernel)
                    expected = expected + (q[0, head, i] + mod.type_bias[head]) @ mod.types[same, head]
                assert math.isclose(scores[0, head, i, j].item(), 0.5 * expected.item(), abs_tol=1e-12)


def test_the_first_token_is_of_every_text() -> None:
    mod = FunnelRelative(WIDTH, HEADS, HEAD_WIDTH, separate_first=False)
    q = torch.randn(1, HEADS, 2, HEAD_WIDTH)
    layouts = [AttentionLayout(2, 2, query_types=types, key_types=types) for types in (torch.tensor([[ANY_TYPE, 1]]),)]
    same = (q + mod.type_bias.unsqueeze(1)) @ mod.types[1].unsqueeze(-1)
    assert_parity(mod.score_types(q, layouts[0]), same.expand(-1, -1, -1, 2))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, [0.0, 1.5, 3.5, 5.0]),
        ({"truncate": True}, [0.0, 1.5, 3.5]),
        ({"separate_first": False}, [0.5, 2.5, 4.5]),
        ({"kind": "max"}, [0.0, 2.0, 4.0, 5.0]),
    ],
    ids=str,
)
def test_neighbours_are_pooled(settings: dict[str, object], expected: list[float]) -> None:
    stream = Stream.of(torch.arange(6.0).view(1, 6, 1))
    pooled = SequencePool(**settings)(stream)  # type: ignore[arg-type]
    assert pooled.x.flatten().tolist() == expected
    assert len(pooled.pos) == len(expected)


def test_padding_is_pooled_only_if_asked_for() -> None:
    stream = Stream.of(torch.arange(5.0).view(1, 5, 1), torch.tensor([[True, True, True, True, False]]))
    for kind in ("mean", "max"):
        pooled = SequencePool(kind)(stream)  # type: ignore[arg-type]
        assert pooled.x[0, 2, 0] == 3
        assert pooled.keep is not None and pooled.keep.all()
    pooled = SequencePool("mean", pool_padding=True)(stream)
    assert pooled.x[0, 2, 0] == 3.5
    assert pooled.keep is not None and pooled.keep.tolist() == [[True, True, False]]


def test_upsampling_repeats_the_vectors_of_pooled_tokens() -> None:
    x = torch.tensor([[[0.0], [1.0], [2.0]]])
    assert SequencePool().upsample(x, 4, 7).flatten().tolist() == [0, 1, 1, 1, 1, 2, 2]
    assert SequencePool(truncate=True).upsample(x, 2, 6).flatten().tolist() == [0, 1, 1, 2, 2, 0]
    assert SequencePool(separate_first=False).upsample(x, 2, 5).flatten().tolist() == [0, 0, 1, 1, 2]


def test_unpooled_attention_is_self_attention_where_nothing_was_pooled() -> None:
    torch.manual_seed(0)
    attention = AttentionConfig(attend_to="unpooled").build(BuildContext(width=12, heads=2, hidden=12))
    stream = Stream.of(torch.randn(2, 5, 12))
    assert_parity(attention(stream, Context(memory={"unpooled": stream})), attention(stream))
    longer = Stream.of(torch.randn(2, 9, 12))
    assert attention(stream, Context(memory={"unpooled": longer})).shape == (2, 5, 12)


def test_maps_of_pooled_tokens_are_expanded_to_all_tokens() -> None:
    model = headwise.build("funnel-tiny", vocab=20, task="masked").eval()
    with torch.inference_mode(), record() as maps:
        model(torch.tensor([[5, 6, 7, 8, 9, 2]]))  # after [CLS], three pairs
    (layers,) = maps.stack_by_kind().values()
    assert layers.shape == (4, 4, 7, 7)
    assert layers.sum(-1) == pytest.approx(1)
    lengths = [tuple(weights[-1].shape[2:]) for weights in maps.weights.values()]
    assert lengths == [(7, 7), (4, 7), (4, 4), (7, 7)]
    pooled = [weights[-1][0].numpy() for weights in maps.weights.values()]
    queries = [0, 1, 1, 2, 2, 3, 3]
    assert layers[1] == pytest.approx(pooled[1][:, queries])
    assert layers[2] == pytest.approx(pooled[2][:, queries][:, :, queries] / [1, 2, 2, 2, 2, 2, 2])


@pytest.mark.parametrize(("size", "expected"), [("small", (3, 2, 2)), ("medium", (3, 2, 2)), ("tiny", (2, 5))])
def test_a_depth_is_divided_among_the_blocks_in_proportion(size: str, expected: tuple[int, ...]) -> None:
    config = MODELS.parse({"kind": f"funnel-{size}", "depth": 7})
    assert config.block_depths == expected
    assert config.replace(depth=7) == config


def test_settings_that_do_not_fit_are_refused() -> None:
    with pytest.raises(UserError, match="block_repeats: has 3 numbers for 2 blocks"):
        headwise.build("funnel-tiny", vocab=12, block_repeats=(1, 1, 1))
    with pytest.raises(UserError, match="width: 33 is odd"):
        headwise.build("funnel-tiny", vocab=12, width=33)
    with pytest.raises(UserError, match="would see the future in a decoder"):
        headwise.build("gpt-tiny", vocab=12, mixer={"kind": "attention", "attend_to": "unpooled"})
    with pytest.raises(UserError, match="depth: 1 is fewer than the 2 blocks, which need a layer each"):
        headwise.build("funnel-tiny", vocab=20, depth=1)
