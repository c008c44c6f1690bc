"""Non-local blocks: the definition of each form, initialisation, maps, pooling."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import headwise
from headwise.blocks.convolution import to_stream
from headwise.blocks.mixers.nonlocal_block import FORMS, NonLocal, NonLocalConfig
from headwise.blocks.part import BuildContext
from headwise.blocks.record import AttentionRecord
from headwise.blocks.residual import PreNorm
from headwise.blocks.stream import Context, Stream
from headwise.blocks.tables import PARTS
from headwise.errors import UserError

GRID, WIDTH = (3, 4), 6


def build_block(form: str, pool: int = 2) -> Any:
    config: Any = PARTS.parse({"kind": "nonlocal", "form": form, "pool": pool})
    built = config.build(BuildContext(WIDTH, 2, 8)).double()
    nn.init.ones_(built.out.norm.weight)
    return built.eval()


def make_images() -> Stream:
    return to_stream(torch.randn(2, WIDTH, *GRID, dtype=torch.float64))


def max_pool_tokens(x: Tensor) -> Tensor:
    """Max-pooling over 2 x 2 tokens, written out; an odd last row is pooled alone."""
    rows = x.unflatten(1, GRID)
    return torch.stack([rows[:, y : y + 2, z : z + 2].amax((1, 2)) for y in (0, 2) for z in (0, 2)], dim=1)


def score_pair(block: Any, form: str, one: Tensor, other: Tensor) -> Tensor:
    """f(x_i, x_j) of the paper, with theta and phi already applied."""
    if form == "concat":
        both = torch.cat((block.score.query, block.score.key), dim=1).flatten()
        return torch.relu(both @ torch.cat((one, other)))
    return one @ other if form == "dot" else (one @ other).exp()


@pytest.mark.parametrize("form", FORMS)
def test_it_equals_its_definition(form: str) -> None:
    block, stream = build_block(form), make_images()
    theta, phi = (stream.x, stream.x) if form == "gaussian" else block.qkv.embed(stream.x).chunk(2, -1)
    phi, g = max_pool_tokens(phi), max_pool_tokens(block.qkv.value(stream.x))
    rows = []
    for image in range(2):
        for place in theta[image]:
            f = torch.stack([score_pair(block, form, place, other) for other in phi[image]])
            rows.append((f @ g[image]) / (len(f) if form in ("dot", "concat") else f.sum()))
    expected = block.out(torch.stack(rows).view(2, 12, -1))
    torch.testing.assert_close(block(stream), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("form", FORMS)
def test_a_new_block_is_the_identity(form: str) -> None:
    layer, stream = PreNorm([NonLocal(WIDTH, form=form)], nn.Identity).double(), make_images()
    assert torch.equal(layer(stream, Context()).x, stream.x)


def test_the_recorded_map_gives_the_outputs() -> None:
    """The weights of the mean do not sum to 1."""
    stream, record = make_images(), AttentionRecord()
    for form in ("embedded", "dot"):
        block = build_block(form)
        block(stream, Context(record=record, path=(form,)))
        (weights,) = record.select(form).values()
        assert weights.shape == (2, 1, 12, 4)
        mixed = weights[:, 0] @ max_pool_tokens(block.qkv.value(stream.x))
        torch.testing.assert_close(block.out(mixed), block(stream))
        assert torch.allclose(weights.sum(-1), torch.ones(())[None].double()) == (form == "embedded")


def test_class_tokens_are_keys_and_not_pooled() -> None:
    """A class token is before the grid; every token attends to it."""
    model: Any = headwise.build("vit-tiny", outputs=3, mixer={"kind": "nonlocal"}).eval()
    for layer in model.encoder.stack.layers:
        nn.init.ones_(layer.parts[0].out.norm.weight)
    record, pixels = AttentionRecord(), torch.randn(2, 1, 16, 16)
    model.encoder(pixels, Context(record=record))
    assert {maps.shape for maps in record.select("encoder").values()} == {(2, 1, 17, 5)}


def test_texts_cannot_be_pooled() -> None:
    tokens = torch.randn(1, 5, WIDTH, dtype=torch.float64)
    assert build_block("embedded", pool=1)(tokens).shape == tokens.shape
    with pytest.raises(UserError, match="pool = 1"):
        build_block("embedded")(tokens)
    with pytest.raises(UserError, match="would see the future"):
        NonLocalConfig().build(BuildContext(WIDTH, 2, 8, causal=True))
