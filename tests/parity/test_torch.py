"""The same weights in torch's own layers: the same outputs."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import headwise
from headwise.blocks.attention.multihead import Attention, CrossProjection
from headwise.blocks.attention.score_mods import Causal
from headwise.blocks.feedforward import FeedForward
from headwise.blocks.norm import LayerNorm, RMSNorm
from headwise.blocks.residual import PostNorm, PreNorm
from headwise.blocks.stream import Context, Stream
from headwise.testing import assert_parity

WIDTH, HEADS, HIDDEN = 16, 4, 24


def close(ours: Tensor, theirs: Tensor) -> None:
    assert_parity(ours, theirs)


@torch.no_grad()
def stir(module: nn.Module) -> nn.Module:
    """Random values everywhere, biases and gains too, so that none can hide."""
    for parameter in module.parameters():
        parameter.add_(0.2 * torch.randn_like(parameter))
    return module.eval()


@torch.no_grad()
def give(target: nn.Module, names: Iterable[str], *sources: Tensor) -> None:
    for name, source in zip(names, sources, strict=True):
        target.get_parameter(name).copy_(source)


def copy_linear(ours: nn.Linear, theirs: nn.Linear) -> None:
    give(ours, ("weight", "bias"), theirs.weight, theirs.bias)


def copy_norm(ours: nn.Module, theirs: nn.LayerNorm) -> None:
    give(ours, ("weight", "bias"), theirs.weight, theirs.bias)


def copy_attention(ours: Attention, theirs: nn.MultiheadAttention) -> None:
    """torch stacks q, k, v in one matrix, as we do; ours for a memory stands apart from the queries."""
    weight, bias = theirs.in_proj_weight, theirs.in_proj_bias
    if isinstance(ours.qkv, CrossProjection):
        give(ours.qkv, ("query.weight", "query.bias"), weight[:WIDTH], bias[:WIDTH])
        give(ours.qkv, ("project.weight", "project.bias"), weight[WIDTH:], bias[WIDTH:])
    else:
        give(ours.qkv, ("project.weight", "project.bias"), weight, bias)
    copy_linear(ours.out, theirs.out_proj)


def copy_layer(ours: PostNorm | PreNorm, theirs: nn.Module) -> None:
    """An encoder layer (two parts) or a decoder layer (three)."""
    attentions = [theirs.self_attn, *([theirs.multihead_attn] if len(ours.parts) == 3 else [])]
    for part, attention in zip(ours.parts, attentions, strict=False):
        copy_attention(part, attention)
    copy_linear(ours.parts[-1].inner, theirs.linear1)
    copy_linear(ours.parts[-1].outer, theirs.linear2)
    for number, norm in enumerate(ours.norms):
        copy_norm(norm, getattr(theirs, f"norm{number + 1}"))


@pytest.mark.parametrize("kernel", ["auto", "plain", "sdpa", "chunked"])
@pytest.mark.parametrize("masked", [False, True], ids=["all real", "padded"])
@pytest.mark.parametrize("causal", [False, True], ids=["both ways", "causal"])
def test_self_attention(kernel: str, masked: bool, causal: bool) -> None:
    theirs = stir(nn.MultiheadAttention(WIDTH, HEADS, batch_first=True))
    ours = Attention(WIDTH, HEADS, score_mods=[Causal()] if causal else [], kernel=kernel).eval()
    copy_attention(ours, theirs)
    x = torch.randn(2, 40, WIDTH)
    keep = torch.arange(40) < torch.tensor([[40], [29]]) if masked else None
    expected, _ = theirs(
        x,
        x,
        x,
        key_padding_mask=None if keep is None else ~keep,
        attn_mask=torch.ones(40, 40, dtype=torch.bool).triu(1) if causal else None,
    )
    close(ours(Stream.of(x, keep)), expected)


def test_attention_to_a_memory() -> None:
    theirs = stir(nn.MultiheadAttention(WIDTH, HEADS, batch_first=True))
    ours = Attention(WIDTH, HEADS, qkv=CrossProjection(WIDTH, HEADS, WIDTH // HEADS)).eval()
    copy_attention(ours, theirs)
    x, memory = torch.randn(2, 3, WIDTH), torch.randn(2, 6, WIDTH)
    keep = torch.arange(6) < torch.tensor([[6], [4]])
    expected, _ = theirs(x, memory, memory, key_padding_mask=~keep)
    close(ours(Stream.of(x), Context({"encoder": Stream.of(memory, keep)})), expected)


def test_attention_maps() -> None:
    theirs = stir(nn.MultiheadAttention(WIDTH, HEADS, batch_first=True))
    ours = Attention(WIDTH, HEADS, kernel="sdpa").eval()
    copy_attention(ours, theirs)
    x = torch.randn(2, 6, WIDTH)
    _, expected = theirs(x, x, x, average_attn_weights=False)
    with headwise.record() as maps:
        ours(x)
    close(maps.weights[()][0], expected)


@pytest.mark.parametrize("wiring", [PostNorm, PreNorm])
def test_encoder_layer(wiring: type[PostNorm] | type[PreNorm]) -> None:
    first = wiring is PreNorm
    theirs = stir(nn.TransformerEncoderLayer(WIDTH, HEADS, HIDDEN, batch_first=True, norm_first=first))
    ours = wiring([Attention(WIDTH, HEADS), FeedForward(WIDTH, HIDDEN)], lambda: LayerNorm(WIDTH)).eval()
    copy_layer(ours, theirs)
    x = torch.randn(2, 7, WIDTH)
    close(ours(Stream.of(x), Context()).x, theirs(x))


@pytest.mark.parametrize("wiring", ["post", "pre"])
@pytest.mark.filterwarnings("ignore:enable_nested_tensor:UserWarning")
def test_transformer(wiring: str) -> None:
    """nn.Transformer ends each stack with a norm; ours only does so where the wiring needs it (pre)."""
    theirs = nn.Transformer(WIDTH, HEADS, 2, 2, HIDDEN, dropout=0.0, batch_first=True, norm_first=wiring == "pre")
    if wiring == "post":
        theirs.encoder.norm = theirs.decoder.norm = None
    stir(theirs)
    model = headwise.build("transformer-tiny", vocab=11, width=WIDTH, heads=HEADS, hidden=HIDDEN, wiring=wiring).eval()
    for ours, stack in ((model.encoder.stack, theirs.encoder), (model.decoder.stack, theirs.decoder)):
        for layer, other in zip(ours.layers, stack.layers, strict=True):
            copy_layer(layer, other)
        if stack.norm is not None:
            copy_norm(ours.final, stack.norm)
    source, target = torch.randint(4, 11, (2, 6)), torch.randint(4, 11, (2, 5))
    source[1, 4:] = 0
    expected = theirs(
        model.encoder.embed(source).x,
        model.decoder.embed(target).x,
        tgt_mask=torch.ones(5, 5, dtype=torch.bool).triu(1),
        src_key_padding_mask=source == 0,
        memory_key_padding_mask=source == 0,
    )
    close(model(source, target), F.linear(expected, model.decoder.head.table.weight))


@pytest.mark.filterwarnings("ignore:enable_nested_tensor:UserWarning")
def test_captioner() -> None:
    """nn.Transformer with GELU and norms first, over patches with positions and words with theirs."""
    theirs = stir(
        nn.Transformer(WIDTH, HEADS, 2, 2, HIDDEN, 0.0, "gelu", layer_norm_eps=1e-6, batch_first=True, norm_first=True)
    )
    settings = {"width": WIDTH, "heads": HEADS, "hidden": HIDDEN}
    model = headwise.build("captioner-tiny", outputs=11, **settings).eval()
    for ours, stack in ((model.encoder.stack, theirs.encoder), (model.decoder.stack, theirs.decoder)):
        for layer, other in zip(ours.layers, stack.layers, strict=True):
            copy_layer(layer, other)
        copy_norm(ours.final, stack.norm)
    images, target = torch.randn(2, 1, 16, 16), torch.randint(4, 11, (2, 5))
    stem = model.encoder.stem
    cells = F.unfold(images, 4, stride=4).transpose(1, 2)  # (B, pixels, patches) -> (B, patches, pixels)
    patches = F.linear(cells, stem.patches.project.weight, stem.patches.project.bias) + stem.positions.table
    mask = torch.ones(5, 5, dtype=torch.bool).triu(1)
    expected = theirs(patches, model.decoder.embed(target).x, tgt_mask=mask)
    close(model(images, target), F.linear(expected, model.decoder.head.table.weight))


def test_norms() -> None:
    layer, rms, x = stir(LayerNorm(WIDTH)), stir(RMSNorm(WIDTH)), 3 * torch.randn(2, 5, WIDTH) + 1
    close(layer(x), F.layer_norm(x, (WIDTH,), layer.weight, layer.bias, 1e-5))
    close(rms(x), F.rms_norm(x, (WIDTH,), rms.weight, 1e-6))
    deviation = x.var(-1, correction=0, keepdim=True).add(1e-5).sqrt()
    close(layer(x), (x - x.mean(-1, keepdim=True)) / deviation * layer.weight + layer.bias)
    close(rms(x), x / x.square().mean(-1, keepdim=True).add(1e-6).sqrt() * rms.weight)
