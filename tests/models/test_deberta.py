"""DeBERTa: sizes, disentangled attention and the enhanced mask decoder."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import headwise
from headwise.blocks.attention.kernels import plain
from headwise.blocks.attention.score_mods import AttentionInputs, AttentionLayout
from headwise.blocks.stack import count_parameters
from headwise.blocks.stream import Context, Stream

IDS = torch.tensor([[5, 11, 7, 8, 2], [6, 11, 2, 0, 0]])


def build_tiny(**settings: Any) -> Any:
    torch.manual_seed(0)
    model = headwise.build("deberta-tiny", **{"vocab": 12, "dropout": 0.0, **settings})
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    return model.double().eval()


@pytest.mark.parametrize(("name", "count"), [("base", 138_601_728), ("large", 405_163_008)])
def test_the_body_is_as_large_as_the_released_one(name: str, count: int) -> None:
    body = headwise.build(f"deberta-{name}", task="tag", outputs=2, device="meta").encoder
    assert count_parameters(body) == count
    masked: Any = headwise.build(f"deberta-{name}", device="meta")
    assert count_parameters(masked.encoder) == count + count_parameters(masked.encoder.stack.positions)


def test_layers_share_one_table_of_distances() -> None:
    layers = build_tiny().encoder.stack.layers
    one, two = (layer.parts[0].score_mods[0] for layer in layers)
    assert one.table is two.table and one.keys is not two.keys


@torch.no_grad()
def test_one_round_without_positions_is_the_last_layer() -> None:
    model, ordinary = build_tiny(mask_decoder=1), build_tiny(mask_decoder=0)
    model.encoder.stack.positions.table.zero_()
    left, unknown = ordinary.load_state_dict(model.state_dict(), strict=False)
    assert not left and unknown == ["encoder.stack.positions.table"]
    real = IDS != 0
    torch.testing.assert_close(model(IDS)[real], ordinary(IDS)[real])


@torch.no_grad()
def test_the_mask_decoder_runs_the_last_layer_twice_with_positions_in_the_queries() -> None:
    model = build_tiny()
    stack, ids = model.encoder.stack, IDS[:1]
    below = stack.layers[0](model.encoder.embed(torch.nn.functional.pad(ids, (1, 0), value=1)), Context())
    layer = stack.layers[1]
    attention = layer.parts[0]
    query, layout = below.x + stack.positions.table[:6], AttentionLayout(6, 6, below.pos, below.pos)
    for _ in range(2):
        q, _, _ = attention.qkv.split(attention.qkv.project(query))
        _, k, v = attention.qkv.split(attention.qkv.project(below.x))
        mixed = plain(AttentionInputs(q, k, v, attention.scale, layout, attention.all_score_mods))
        query = layer.norms[0](query + attention.out(mixed.transpose(1, 2).flatten(2)))
        query = layer.norms[1](query + layer.parts[1](query))
    torch.testing.assert_close(model(ids), model.head(query[:, 1:]))


@torch.no_grad()
def test_maps_of_the_mask_decoder_cover_the_text_alone() -> None:
    """Without positions, asked once, it looks where the last layer does."""
    model, ordinary = build_tiny(mask_decoder=1), build_tiny(mask_decoder=0)
    model.encoder.stack.positions.table.zero_()
    ordinary.load_state_dict(model.state_dict(), strict=False)
    found = []
    for each in (model, ordinary):
        with headwise.record() as maps:
            each(IDS)
        found.append(maps.select("encoder", 1))
    (one,), (other,) = (each.values() for each in found)
    torch.testing.assert_close(one[0], other[0])
    torch.testing.assert_close(one[1, :, :4], other[1, :, :4])


@torch.no_grad()
def test_attention_depends_on_distances_alone() -> None:
    attention = build_tiny(mask_decoder=0).encoder.stack.layers[0].parts[0]
    x = torch.randn(1, 5, 32, dtype=torch.float64)
    torch.testing.assert_close(attention(Stream.of(x)), attention(Stream.of(x, start=7)))
