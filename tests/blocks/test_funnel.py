"""Funnel-Transformer: the score of relative positions and token types, pooling and upsampling."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

import headwise
from headwise import UserError
from headwise.blocks.attention.multihead import AttentionConfig
from headwise.blocks.attention.score_mods import AttentionInputs, AttentionLayout
from headwise.blocks.funnel import SequencePool
from headwise.blocks.part import BuildContext
from headwise.blocks.positions.absolute import build_sinusoids
from headwise.blocks.positions.funnel import ANY_TYPE, FunnelRelative
from headwise.blocks.record import collect, record
from headwise.blocks.stack import count_parameters
from headwise.blocks.stream import Context, Stream
from headwise.catalog import MODELS
from headwise.models.cost import count_flops
from headwise.testing import assert_parity, check_model, perturb_parameters

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


def build_pooled(task: str = "transduce", depth: int = 5, pooled: tuple[int, ...] = (2, 4), **settings: Any) -> Any:
    torch.manual_seed(0)
    encoder = {"depth": depth, "pooled_layers": pooled}
    model = headwise.build("t5-tiny", vocab=20, task=task, encoder=encoder, dropout=0.0, **settings)
    return perturb_parameters(model)  # in float64


def pool_pairs(x: Tensor, lengths: list[int]) -> tuple[Tensor, list[int]]:
    """The means of the real tokens 2i and 2i + 1 of each row, and how many there are."""
    rows = [
        [row[i : min(i + 2, length)].mean(0) for i in range(0, length, 2)]
        for row, length in zip(x, lengths, strict=True)
    ]
    longest = (x.shape[1] + 1) // 2
    padded = [torch.stack(row + [torch.zeros_like(x[0, 0])] * (longest - len(row))) for row in rows]
    return torch.stack(padded), [len(row) for row in rows]


@torch.no_grad()
def test_tokens_are_pooled_after_the_self_attention_of_a_layer() -> None:
    """Each row, with padding, against its own tokens pooled by a loop; the decoder attends to what is left."""
    model, ids = build_pooled(), torch.tensor([[5, 6, 7, 8, 9, 3, 2], [6, 5, 9, 2, 0, 0, 0]])
    memory = model.encoder.read(ids)["encoder"]
    assert memory.x.shape[:2] == (2, 2) and memory.keep is not None
    assert memory.keep.tolist() == [[True, True], [True, False]]
    stack, x, lengths = model.encoder.stack, model.encoder.embed(ids).x, [7, 4]
    positions = torch.arange(7)
    for number, layer in enumerate(stack.layers, 1):
        mixing, rest = (layer.mixing, layer.rest) if number in (2, 4) else (layer, None)
        stream = Stream(x, positions, torch.arange(x.shape[1]) < torch.tensor(lengths).unsqueeze(1))
        x = mixing(stream, Context()).x
        if rest is not None:
            (x, lengths), positions = pool_pairs(x, lengths), positions[::2]
            x = rest(Stream(x, positions), Context()).x
    assert lengths == [2, 1]
    assert_parity(memory.x[memory.keep], stack.final(x)[memory.keep])


@torch.no_grad()
def test_the_length_is_restored_where_a_task_needs_every_token() -> None:
    model, ids = build_pooled("masked"), torch.tensor([[5, 6, 7, 8, 9, 3, 2]])
    stack = model.encoder.stack
    with collect("layer") as side:
        outputs = model.encoder(ids, Context())
    layers = [layer.x for layer in side.list_values("layer")]
    assert [layer.shape[1] for layer in layers] == [7, 4, 4, 2, 2]
    repeated = torch.stack([layers[-1][:, position // 4] for position in range(7)], 1)
    assert_parity(outputs.x, stack.final(repeated + layers[0]))
    for task in ("tag", "classify", "answer"):
        model = build_pooled(task, outputs=5)
        assert model.encoder(ids, Context()).x.shape[1] == 7


@pytest.mark.parametrize("task", ["transduce", "tag"])
def test_a_pooled_encoder_does_not_depend_on_padding(task: str) -> None:
    check_model(build_pooled(task, width=8, heads=2, hidden=8, outputs=0 if task == "transduce" else 5))


def test_maps_of_pooled_layers_are_expanded_to_all_tokens() -> None:
    model = build_pooled("masked")
    with torch.inference_mode(), record() as maps:
        model(torch.tensor([[5, 6, 7, 8, 9, 3, 2]]))
    (layers,) = maps.stack_by_kind().values()
    assert layers.shape == (5, 4, 7, 7)
    pooled = [weights[-1][0].numpy() for weights in maps.weights.values()]
    assert [maps.shape[1:] for maps in pooled] == [(7, 7), (7, 7), (4, 4), (4, 4), (2, 2)]
    tokens = [0, 0, 0, 0, 1, 1, 1]
    assert layers[4] == pytest.approx(pooled[4][:, tokens][:, :, tokens] / [4, 4, 4, 4, 3, 3, 3])


def test_the_size_of_narang() -> None:
    """Three blocks of four layers: pooling has no parameters, and saves operations."""
    plain, pooled = (
        headwise.build("t5-base", device="meta", encoder={"depth": 12, **settings})
        for settings in ({}, {"pooled_layers": [5, 9]})
    )
    assert count_parameters(pooled) == count_parameters(plain) == pytest.approx(223e6, rel=0.01)
    assert count_flops(pooled, 64, ()) < 0.9 * count_flops(plain, 64, ())


def test_pooling_that_does_not_fit_is_refused() -> None:
    pooled = {"depth": 4, "pooled_layers": [2]}
    with pytest.raises(UserError, match="pooled_layers: would see the future in a decoder; pool in the encoder alone"):
        headwise.build("t5-tiny", vocab=12, decoder=pooled)
    with pytest.raises(UserError, match="pooled_layers: would see the future in a decoder"):
        headwise.build("gpt-tiny", vocab=12, pooled_layers=[2])
    with pytest.raises(UserError, match="pooled_layers: there is no layer 5 among 4; lower the number"):
        headwise.build("t5-tiny", vocab=12, encoder={"depth": 4, "pooled_layers": [5]})
    with pytest.raises(UserError, match="pooled_layers: shared layers would pool every time; leave shared out"):
        headwise.build("t5-tiny", vocab=12, encoder={**pooled, "shared": True})
    with pytest.raises(UserError, match="pooled_layers: only plain texts can be pooled"):
        headwise.build("vit-tiny", outputs=3, pooled_layers=[2])(torch.zeros(1, 1, 8, 8))


def test_settings_that_do_not_fit_are_refused() -> None:
    with pytest.raises(UserError, match="block_repeats: has 3 numbers for 2 blocks"):
        headwise.build("funnel-tiny", vocab=12, block_repeats=(1, 1, 1))
    with pytest.raises(UserError, match="width: 33 is odd"):
        headwise.build("funnel-tiny", vocab=12, width=33)
    with pytest.raises(UserError, match="would see the future in a decoder"):
        headwise.build("gpt-tiny", vocab=12, mixer={"kind": "attention", "attend_to": "unpooled"})
    with pytest.raises(UserError, match="depth: 1 is fewer than the 2 blocks, which need a layer each"):
        headwise.build("funnel-tiny", vocab=20, depth=1)
