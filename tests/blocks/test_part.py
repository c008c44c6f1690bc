"""Parts alone on plain tensors, and what they declare, tested both ways."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from headwise.blocks.attention.multihead import Attention, CrossProjection
from headwise.blocks.attention.score_mods import Causal, Window
from headwise.blocks.cache import DecodingCache
from headwise.blocks.embed import Embedding
from headwise.blocks.feedforward import FeedForward
from headwise.blocks.heads import VocabularyHead
from headwise.blocks.norm import LayerNorm, RMSNorm
from headwise.blocks.part import Part
from headwise.blocks.positions.alibi import Alibi
from headwise.blocks.positions.base import NoPositions
from headwise.blocks.positions.relative import ShawRelative, T5Bias
from headwise.blocks.positions.rotary import Rotary
from headwise.blocks.residual import PostNorm
from headwise.blocks.stack import Decoder, Stack
from headwise.blocks.stream import Context, Stream
from headwise.errors import UserError
from headwise.testing import assert_causal

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


class Setting:
    """A part with an input and something to attend to."""

    def __init__(self, name: str):
        self.part = PARTS[name]().double().eval()
        self.x = torch.randn(2, LENGTH, WIDTH, dtype=torch.float64)
        self.memory = {"encoder": Stream.of(torch.randn(2, 4, WIDTH, dtype=torch.float64))}

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self.part(Stream.of(x), Context(self.memory))

    def stepped(self) -> torch.Tensor:
        ctx = Context(self.memory, DecodingCache(rows=2))
        outs = [self.part(Stream.of(self.x[:, t : t + 1], start=t), ctx) for t in range(LENGTH)]
        return torch.cat(outs, dim=1)


@pytest.fixture(params=PARTS)
def setting(request: pytest.FixtureRequest) -> Setting:
    return Setting(request.param)


def test_causal_or_seen_to_leak(setting: Setting) -> None:
    if setting.part.properties.causal:
        assert_causal(setting, setting.x)
    else:
        with pytest.raises(AssertionError, match="gradient"):
            assert_causal(setting, setting.x)


def test_steppable_or_seen_to_differ(setting: Setting) -> None:
    same = torch.allclose(setting.stepped(), setting(setting.x))
    assert same == setting.part.properties.steppable


def test_batch_independent_and_exact(setting: Setting) -> None:
    properties = setting.part.properties
    assert properties.batch_independent and properties.exact and properties.length_free
    first = {name: Stream.of(stream.x[:1]) for name, stream in setting.memory.items()}
    alone = setting.part(Stream.of(setting.x[:1]), Context(first))
    torch.testing.assert_close(alone, setting(setting.x)[:1])
    assert torch.equal(setting(setting.x), setting(setting.x))


@pytest.mark.parametrize("name", sorted(PARTS.keys() - {"memory"}))
def test_takes_a_plain_tensor(name: str) -> None:
    part = PARTS[name]()
    for length in (1, 50):
        assert part(torch.randn(3, length, WIDTH)).shape == (3, length, WIDTH)


@pytest.mark.parametrize("norm", [LayerNorm, RMSNorm])
def test_norms_take_a_plain_tensor(norm: type[LayerNorm] | type[RMSNorm]) -> None:
    assert norm(WIDTH)(torch.randn(2, 3, WIDTH)).shape == (2, 3, WIDTH)


def test_a_part_stays_where_its_input_is() -> None:
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
