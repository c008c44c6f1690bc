"""Parts alone on plain tensors, and what they declare, tested both ways."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from headwise.blocks.attention.multihead import Attention, CrossProjection
from headwise.blocks.attention.score_mods import Causal, Window
from headwise.blocks.feedforward import FeedForward
from headwise.blocks.heads import VocabularyHead
from headwise.blocks.norm import LayerNorm, RMSNorm
from headwise.blocks.part import BuildContext
from headwise.blocks.positions.alibi import Alibi
from headwise.blocks.positions.base import NoPositions
from headwise.blocks.positions.relative import ShawRelative, T5Bias
from headwise.blocks.positions.rotary import Rotary
from headwise.blocks.residual import PostNorm
from headwise.blocks.stack import Decoder, Embedding, Stack
from headwise.blocks.stream import Context, Part, Stream
from headwise.errors import UserError
from headwise.testing import check_part

WIDTH, LENGTH = 8, 6
PARTS: dict[str, Callable[[], Part]] = {
    "attention": lambda: Attention(WIDTH, 2),
    "attention of a window": lambda: Attention(WIDTH, 2, score_mods=[Window(2, 2)]),
    "attention with rotary": lambda: Attention(WIDTH, 2, score_mods=[Rotary(4)]),
    "causal attention": lambda: Attention(WIDTH, 2, score_mods=[Causal()]),
    "causal attention of a window": lambda: Attention(WIDTH, 2, score_mods=[Window(2, 0), Causal()]),
    "causal attention with alibi": lambda: Attention(WIDTH, 2, score_mods=[Alibi(2), Causal()]),
    "causal attention with buckets": lambda: Attention(WIDTH, 2, score_mods=[T5Bias(2), Causal()]),
    "causal attention with shaw": lambda: Attention(WIDTH, 2, score_mods=[ShawRelative(4, 2), Causal()]),
    "memory": lambda: Attention(WIDTH, 2, qkv=CrossProjection(WIDTH, 2, 4)),
    "feed-forward": lambda: FeedForward(WIDTH, 12, "geglu"),
}


@pytest.mark.parametrize("name", PARTS)
def test_parts_do_what_they_declare(name: str) -> None:
    part = PARTS[name]()
    assert part.properties.batch_independent and part.properties.exact and part.properties.length_free
    check_part(part, BuildContext(width=WIDTH, heads=2, hidden=12))


@pytest.mark.parametrize("name", sorted(PARTS.keys() - {"memory"}))
def test_takes_a_plain_tensor(name: str) -> None:
    part = PARTS[name]()
    for length in (1, 50):
        assert part(torch.randn(3, length, WIDTH)).shape == (3, length, WIDTH)


@pytest.mark.parametrize("norm", [LayerNorm, RMSNorm])
def test_norms_take_a_plain_tensor(norm: type[LayerNorm] | type[RMSNorm]) -> None:
    assert norm(WIDTH)(torch.randn(2, 3, WIDTH)).shape == (2, 3, WIDTH)


def test_a_part_stays_on_the_device_of_its_input() -> None:
    """Nothing is moved to another device on the way: the meta device would not allow it."""
    for make in PARTS.values():
        with torch.device("meta"):
            part, x = make(), torch.randn(2, LENGTH, WIDTH)
            memory = {"encoder": Stream.of(torch.randn(2, 4, WIDTH))}
        assert part(Stream.of(x), Context(memory)).device.type == "meta"


def test_a_decoder_refuses_a_part_that_would_see_the_future() -> None:
    table = torch.nn.Embedding(5, WIDTH)
    embed, head = Embedding(table, NoPositions()), VocabularyHead(WIDTH, 5, table)
    stack = Stack([PostNorm([Attention(WIDTH, 2)], lambda: LayerNorm(WIDTH))])
    with pytest.raises(UserError, match="Attention is not causal"):
        Decoder(embed, stack, head)
