"""DeBERTa: sizes, disentangled attention and the enhanced mask decoder."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import headwise
from headwise.blocks.attention.kernels import plain
from headwise.blocks.attention.score_mods import AttentionInputs, AttentionLayout
from headwise.blocks.input_convolution import InputConvolution
from headwise.blocks.positions.relative import bucket_log_distances
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


def test_distances_up_to_half_of_the_buckets_are_exact_and_larger_ones_logarithmic() -> None:
    distances = torch.arange(-30, 31)
    rows = bucket_log_distances(distances, 8, 17)
    assert rows[26:35].tolist() == [-4, -3, -2, -1, 0, 1, 2, 3, 4]
    # 4 + ceil(3 * log(d / 4) / log(16 / 4)) of the distances d from 4 to 15
    assert rows[34:46].tolist() == [4, 5, 5, 6, 6, 6, 6, 7, 7, 7, 7, 7]
    assert torch.equal(rows, -rows.flip(0)) and bool((rows.diff() >= 0).all())


@torch.no_grad()
def test_shared_projections_score_distances_with_those_of_tokens() -> None:
    """e_ij = (q_i k_j + q_i W_k r + k_j W_q r) / sqrt(3 D), with r the normed vector of the distance i - j."""
    positions = {"kind": "deberta", "max_distance": 16, "buckets": 4, "shared": True, "norm_eps": 1e-7}
    attention = build_tiny(mask_decoder=0, positions=positions).encoder.stack.layers[0].parts[0]
    mod, x = attention.score_mods[0], torch.randn(1, 7, 32, dtype=torch.float64)
    q, k, v = attention.qkv.split(attention.qkv.project(x))
    relative_q, relative_k, _ = attention.qkv.split(attention.qkv.project(mod.norm(mod.table.weight)[None]))
    scores = torch.empty(1, 4, 7, 7, dtype=torch.float64)
    for i in range(7):
        for j in range(7):
            row = int(bucket_log_distances(torch.tensor(i - j), 4, 16).clamp(-4, 3)) + 4
            terms = (q[:, :, i] * (k[:, :, j] + relative_k[:, :, row]) + k[:, :, j] * relative_q[:, :, row]).sum(-1)
            scores[:, :, i, j] = terms / (3 * 8) ** 0.5
    expected = attention.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
    torch.testing.assert_close(attention(Stream.of(x)), expected)
    assert mod.keys is None and mod.queries is None


@torch.no_grad()
def test_the_convolution_reads_the_embeddings_and_no_padding() -> None:
    model = build_tiny(mask_decoder=0, convolution={"kernel": 3, "groups": 2, "activation": "gelu"})
    stack = model.encoder.stack
    stream = model.encoder.embed(IDS[:1])
    near = torch.nn.functional.conv1d(
        stream.x.mT, stack.convolution.conv.weight, stack.convolution.conv.bias, padding=1, groups=2
    ).mT
    first = stack.layers[0](stream, Context())
    mixed = stack.convolution.norm(first.x + torch.nn.functional.gelu(near))
    torch.testing.assert_close(stack(stream, Context()).x, stack.layers[1](first.with_x(mixed), Context()).x)
    torch.testing.assert_close(model(IDS)[1, :3], model(IDS[1:, :3])[0])
    assert isinstance(stack.convolution, InputConvolution)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"convolution": {"kernel": 3}}, "convolution: the mask decoder runs layers of its own"),
        ({"convolution": {"kernel": 2}}, "convolution.kernel: must be odd"),
        ({"convolution": {"kernel": 3, "groups": 5}, "mask_decoder": 0}, "convolution.groups: must divide the width"),
        ({"convolution": {"kernel": 3, "activation": "glu"}}, "convolution.activation: a convolution has no gate"),
        ({"positions": {"kind": "deberta", "buckets": 1}}, "buckets: must be at least 2"),
        ({"positions": {"kind": "deberta", "terms": ["c2p", "c2p"]}}, "terms: each can stand there once"),
    ],
    ids=str,
)
def test_other_settings_are_refused(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(headwise.UserError, match=complaint):
        build_tiny(**settings)
