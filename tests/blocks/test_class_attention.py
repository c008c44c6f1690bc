"""Class attention as attention of the class tokens, patches that stay unchanged, and talking heads."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import headwise
from headwise import UserError
from headwise.blocks.attention.multihead import Attention, CrossProjection
from headwise.blocks.attention.talking_heads import TalkingHeads
from headwise.blocks.class_attention import ClassAttentionLayer, PrependClassTokens
from headwise.blocks.feedforward import FeedForward
from headwise.blocks.norm import LayerNorm
from headwise.blocks.stream import Context, Stream

WIDTH, HEADS = 8, 2


def build_norm() -> nn.Module:
    return LayerNorm(WIDTH)


def make_stream(class_tokens: int = 1) -> Stream:
    x = torch.randn(3, class_tokens + 6, WIDTH, dtype=torch.float64)
    return Stream(x, torch.arange(class_tokens + 6), grid=(2, 3))


def build_layer() -> ClassAttentionLayer:
    attention = Attention(WIDTH, HEADS, qkv=CrossProjection(WIDTH, HEADS, WIDTH // HEADS))
    layer = ClassAttentionLayer([attention, FeedForward(WIDTH, 12, "gelu")], build_norm).double()
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.5)
    return layer


@pytest.mark.parametrize("class_tokens", [1, 2])
@torch.no_grad()
def test_it_is_attention_of_the_class_tokens_alone(class_tokens: int) -> None:
    layer, stream = build_layer(), make_stream(class_tokens)
    looks, whole = layer.parts[0], Attention(WIDTH, HEADS).double()
    whole.out = looks.out
    whole.qkv.project.weight.copy_(torch.cat((looks.qkv.query.weight, looks.qkv.project.weight)))
    whole.qkv.project.bias.copy_(torch.cat((looks.qkv.query.bias, looks.qkv.project.bias)))
    x = stream.x[:, :class_tokens] + whole(layer.norms[0](stream.x))[:, :class_tokens]
    expected = x + layer.parts[1](layer.norms[1](x))
    torch.testing.assert_close(layer(stream, Context()).x[:, :class_tokens], expected)


@torch.no_grad()
def test_patches_do_not_change() -> None:
    stream = make_stream()
    out = build_layer()(stream, Context())
    assert torch.equal(out.x[:, 1:], stream.x[:, 1:]) and out.grid == stream.grid
    assert not torch.allclose(out.x[:, 0], stream.x[:, 0])


def test_class_tokens_are_put_before_the_grid() -> None:
    stream = make_stream(0)
    layer = PrependClassTokens(WIDTH, class_tokens=2).double()
    nn.init.normal_(layer.class_tokens)
    out = layer(stream, Context())
    assert torch.equal(out.x[:, 2:], stream.x) and torch.equal(out.x[1, :2], layer.class_tokens)
    assert (out.grid, out.pos.tolist()) == ((2, 3), list(range(8)))


def test_a_class_layer_needs_a_grid() -> None:
    with pytest.raises(UserError, match="no grid"):
        build_layer()(Stream.of(torch.randn(1, 4, WIDTH, dtype=torch.float64)), Context())


def build_talking_heads(change: Callable[[TalkingHeads], object] = lambda mod: None) -> Attention:
    torch.manual_seed(0)
    mod = TalkingHeads(HEADS)
    change(mod)
    return Attention(WIDTH, HEADS, score_mods=[mod]).double()


def set_identity(mod: TalkingHeads) -> None:
    for linear in (mod.before, mod.after):
        nn.init.eye_(linear.weight)
        nn.init.zeros_(linear.bias)


@torch.no_grad()
def test_talking_heads_with_identity_matrices_are_plain_heads() -> None:
    part, plain, x = build_talking_heads(set_identity), Attention(WIDTH, HEADS).double(), make_stream().x
    plain.qkv, plain.out = part.qkv, part.out
    torch.testing.assert_close(part(x), plain(x))


@torch.no_grad()
def test_heads_exchange_scores_and_weights() -> None:
    """Equation 3 and 4 of talking-heads attention, head by head."""
    part, x = build_talking_heads(), make_stream().x
    mod: TalkingHeads = part.score_mods[0]  # type: ignore[assignment]
    q, k, v = part.qkv.split(part.qkv.project(x))
    scores = [q[:, head] @ k[:, head].mT / (WIDTH // HEADS) ** 0.5 for head in range(HEADS)]

    def mix_heads(linear: nn.Linear, heads: list[Tensor]) -> list[Tensor]:
        rows = zip(linear.weight, linear.bias, strict=True)
        return [sum(share * head for share, head in zip(row, heads, strict=True)) + shift for row, shift in rows]  # type: ignore[misc]

    weights = mix_heads(mod.after, [head_scores.softmax(-1) for head_scores in mix_heads(mod.before, scores)])
    expected = part.out(torch.cat([head_weights @ v[:, head] for head, head_weights in enumerate(weights)], dim=-1))
    torch.testing.assert_close(part(x), expected)


@torch.no_grad()
def test_masked_keys_stay_masked_with_talking_heads() -> None:
    """The bias after the softmax must not give weight to padding and to the future."""
    part = build_talking_heads()
    x, keep = torch.randn(1, 5, WIDTH, dtype=torch.float64), torch.tensor([[True, True, True, False, False]])
    torch.testing.assert_close(part(Stream.of(x, keep))[:, :3], part(x[:, :3]))
    writer = headwise.build("gpt2-tiny", vocab=12, mixer={"kind": "attention", "score_mods": ["talking"]}).eval()
    ids = torch.tensor([[4, 5, 6, 7]])
    torch.testing.assert_close(writer(ids)[:, :2], writer(ids[:, :2]))
