"""Local attention whose blocks form a ring, as in the Reformer of `transformers`, and texts padded to whole chunks."""

from __future__ import annotations

import pytest
import torch

import headwise
from headwise import UserError
from headwise.blocks.attention.score_mods import ApproximateMap, AttentionInputs
from headwise.blocks.mixers.sparse import LocalMixerConfig, WrappedLocalAttention
from headwise.blocks.part import BuildContext
from headwise.blocks.stream import Context, LayerPath, Recorder, Stream
from headwise.testing import assert_parity, check_part

SITE = BuildContext(width=12, heads=2, hidden=12)


def build(**settings: int) -> WrappedLocalAttention:
    torch.manual_seed(0)
    part = LocalMixerConfig(wrap=True, **settings).build(SITE)
    assert isinstance(part, WrappedLocalAttention)
    return part.eval()


def test_it_declares_what_it_does() -> None:
    check_part(LocalMixerConfig(block=2, before=1, wrap=True))


class MapKeeper(Recorder):
    """Keeps the attention map of a mixer."""

    def observe(self, path: LayerPath, inputs: AttentionInputs | ApproximateMap) -> None:
        assert isinstance(inputs, ApproximateMap)
        self.map = inputs.weights()


@pytest.mark.parametrize(("block", "before", "after"), [(3, 1, 0), (3, 0, 1), (3, 0, 0), (16, 1, 0)])
def test_the_first_block_attends_to_the_last(block: int, before: int, after: int) -> None:
    """A text of one block has full attention."""
    part, keeper = build(block=block, before=before, after=after), MapKeeper()
    x, keep = torch.randn(2, 11, 12), torch.ones(2, 11, dtype=torch.bool)
    keep[1, 8:] = False
    blocks = torch.arange(11) // block
    distance = (blocks[:, None] - blocks) % (int(blocks.max()) + 1)  # from the key's to the query's, around the ring
    visible = (distance <= before) | ((-distance) % (int(blocks.max()) + 1) <= after)
    q, k, v = part.qkv.split(part.qkv.project(x))
    scores = (q @ k.mT * part.head_width**-0.5).masked_fill(~(visible & keep[:, None, None]), -torch.inf)
    weights = scores.softmax(-1).nan_to_num()
    expected = part.out((weights @ v).transpose(1, 2).flatten(2))
    assert_parity(part(Stream.of(x, keep), Context(record=keeper))[keep], expected[keep])
    assert_parity(keeper.map.transpose(1, 2)[keep], weights.transpose(1, 2)[keep])


def test_decoders_refuse_it() -> None:
    with pytest.raises(UserError, match="local with wrap: would see the future"):
        headwise.build("reformer-tiny", vocab=12, task="language-model", local={"kind": "local", "wrap": True})


def test_padding_to_whole_chunks_drops_its_outputs() -> None:
    torch.manual_seed(0)
    model = headwise.build("reformer-tiny", vocab=12, task="encode", pad_to_chunks=True).eval()  # chunks of 8 and 4
    for length in (3, 5, 13, 16):
        ids = torch.randint(4, 12, (2, length))
        assert model.encoder(ids, Context()).x.shape == (2, length, 64)
