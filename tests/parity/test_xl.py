"""Transformer-XL against its equations, unrolled in float64, and against the attention of XLNet, which is the same."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import XLNetConfig
from transformers.models.xlnet.modeling_xlnet import XLNetModel, XLNetRelativeAttention

import headwise
from headwise.blocks.attention.multihead import Attention
from headwise.blocks.attention.projections import SegmentRecurrenceProjection
from headwise.blocks.positions.relative import ContentBiases, DistanceSinusoids, TransformerXLRelative
from headwise.blocks.segment_memory import SegmentMemory
from headwise.blocks.stream import Context, Stream
from headwise.testing import assert_parity

WIDTH, HEADS, HEAD_WIDTH = 8, 2, 4


def angle_codes(distance: int, width: int) -> Tensor:
    angles = [distance / 10_000 ** (2 * i / width) for i in range(width // 2)]
    return torch.tensor([math.sin(a) for a in angles] + [math.cos(a) for a in angles], dtype=torch.float64)


def attended(attention: Any, x: Tensor, memory: Tensor) -> Tensor:
    """One row and one head at a time: (T, C) tokens after (M, C) earlier ones."""
    both, mod = torch.cat((memory, x)), attention.score_mods[0]
    query, key, value = attention.qkv.project.weight.split(WIDTH)
    mixed = torch.zeros(len(x), WIDTH, dtype=torch.float64)
    for head in range(HEADS):
        own = slice(head * HEAD_WIDTH, (head + 1) * HEAD_WIDTH)
        u, v = mod.leanings.content[head, 0], mod.leanings.distance[head, 0]
        for place in range(len(x)):
            q, at = query[own] @ x[place], len(memory) + place
            scores = [
                (q + u) @ (key[own] @ both[j]) + (q + v) @ (mod.project.weight[own] @ angle_codes(at - j, WIDTH))
                for j in range(at + 1)
            ]
            weights = (torch.stack(scores) / math.sqrt(HEAD_WIDTH)).softmax(0)
            mixed[place, own] = weights @ (both[: at + 1] @ value[own].t())
    return mixed @ attention.out.weight.t()


def unrolled(model: Any, ids: Tensor, memory: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """Logits of one row, and the hidden states below each layer."""
    x, below = model.decoder.embed.table.weight[ids] * math.sqrt(WIDTH), []
    for layer, before in zip(model.decoder.stack.layers, memory, strict=True):
        below.append(x)
        x = layer.norms[0](x + attended(layer.parts[0], x, before))
        x = layer.norms[1](x + layer.parts[1](x[None])[0])
    return x @ model.decoder.head.table.weight.t() + model.decoder.head.bias, below


@torch.no_grad()
def test_two_segments_are_the_papers_equations() -> None:
    torch.manual_seed(0)
    model: Any = headwise.build(
        "transformer-xl-tiny", vocab=11, width=WIDTH, heads=HEADS, hidden=12, memory_length=4, dropout=0.0
    )
    model = model.double().eval()
    for parameter in model.parameters():
        parameter.normal_(std=0.4)
    one, two = torch.tensor([5, 6, 7, 8, 9, 10]), torch.tensor([4, 9, 3])
    nothing = [torch.zeros(0, WIDTH, dtype=torch.float64)] * 2
    expected, below = unrolled(model, one, nothing)
    first = SegmentMemory(model.memory_length)
    torch.testing.assert_close(model(one[None], carried=first)[0], expected)
    for parameter in model.parameters():  # as training does between two segments: what is carried stays as it was
        parameter.add_(0.1)
    expected, _ = unrolled(model, two, [x[-4:] for x in below])
    second = SegmentMemory(model.memory_length, first.next_states)
    torch.testing.assert_close(model(two[None], carried=second)[0], expected)


@torch.no_grad()
def test_words_of_rare_clusters_have_the_papers_probabilities() -> None:
    """The released code's settings: each cluster with a projection, which the softmax shares except for the first;
    p(word) = p(cluster) p(word | cluster), word by word."""
    torch.manual_seed(0)
    clusters = {"kind": "adaptive", "cutoffs": [4, 7], "widths": [8, 4, 2], "projections": "all"}
    model: Any = headwise.build(
        "transformer-xl-tiny",
        vocab=11,
        width=WIDTH,
        heads=HEADS,
        token_embedding=clusters,
        output_layer={**clusters, "tie_projections": "tails"},
    )
    model = model.double().eval()
    for parameter in model.parameters():
        parameter.normal_(std=0.4)
    head, embed, ids = model.decoder.head, model.decoder.embed.table, torch.tensor([[5, 1, 9, 3]])
    inputs = model.decoder.embed(ids).x[0]
    for token, vector in zip(ids[0].tolist(), inputs, strict=True):
        cluster, first = (0, 0) if token < 4 else (1, 4) if token < 7 else (2, 7)
        expected = embed.projections[cluster].weight @ embed.tables[cluster].weight[token - first]
        torch.testing.assert_close(vector, math.sqrt(WIDTH) * expected)
    x = torch.randn(WIDTH, dtype=torch.float64)
    own = head.projections[0].weight.t() @ x
    scores = [float(row @ own + bias) for row, bias in zip(embed.tables[0].weight, head.bias[:4], strict=True)]
    scores += [float(row @ own + bias) for row, bias in zip(head.cluster_table.weight, head.cluster_bias, strict=True)]
    total = math.log(sum(math.exp(score) for score in scores))
    expected = [score - total for score in scores[:4]]
    for cluster, start, end in ((1, 4, 7), (2, 7, 11)):
        narrow = embed.projections[cluster].weight.t() @ x
        rows = zip(embed.tables[cluster].weight, head.bias[start:end], strict=True)
        tail = [float(row @ narrow + bias) for row, bias in rows]
        normaliser = math.log(sum(math.exp(score) for score in tail))
        expected += [scores[3 + cluster] - total + score - normaliser for score in tail]
    torch.testing.assert_close(head(x), torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("queries_first", [False, True])
@torch.no_grad()
def test_attention_is_that_of_xlnet(queries_first: bool) -> None:
    """Both ways and with a memory; few queries meet the projection before the distances do."""
    length, before = (1, 6) if queries_first else (9, 4)
    config = XLNetConfig(d_model=16, n_head=4, d_inner=8, n_layer=1, vocab_size=9, attn_type="bi", dropout=0.0)
    theirs = XLNetRelativeAttention(config).eval()
    for parameter in theirs.parameters():
        parameter.normal_(std=0.3)
    mod = TransformerXLRelative(16, 4, 4, DistanceSinusoids(16, both_ways=True), ContentBiases(4, 4))
    ours = Attention(16, 4, qkv=SegmentRecurrenceProjection(16, 4, 4, bias=False), score_mods=[mod], bias=False).eval()
    ours.qkv.project.weight.copy_(torch.cat([w.flatten(1).t() for w in (theirs.q, theirs.k, theirs.v)]))
    ours.out.weight.copy_(theirs.o.flatten(1))
    mod.project.weight.copy_(theirs.r.flatten(1).t())
    mod.leanings.content.copy_(theirs.r_w_bias[:, None])
    mod.leanings.distance.copy_(theirs.r_r_bias[:, None])
    x, memory = torch.randn(2, length, 16), torch.randn(2, before, 16)
    codes = XLNetModel(config).relative_positional_encoding(length, before + length, bsz=2)
    expected, _ = theirs(x.transpose(0, 1), None, None, None, codes, None, mems=memory.transpose(0, 1))
    left = {"": memory, "keep": torch.ones(2, before, dtype=torch.bool)}
    found = theirs.layer_norm(x + ours(Stream.of(x), Context(cache=SegmentMemory(before, left))))
    assert_parity(found, expected.transpose(0, 1))


def test_far_distances_are_made_when_they_are_asked_for() -> None:
    for both_ways in (False, True):
        near, far = DistanceSinusoids(6, both_ways, cached=3), DistanceSinusoids(6, both_ways, cached=20)
        torch.testing.assert_close(near(9), far(9))
        torch.testing.assert_close(near(2), far(2))
        assert near(9).shape[0] == (19 if both_ways else 10)
