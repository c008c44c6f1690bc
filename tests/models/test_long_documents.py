"""BigBird and Transformer-DMCA: published sizes, properties, and that they learn."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import headwise
from headwise.blocks.mixers.compressed import CompressedAttention
from headwise.blocks.mixers.sparse import BigBirdAttention, BlockSparseAttention
from headwise.blocks.stack import count_parameters
from headwise.models.language_model import LanguageModel, PrefixLM


def test_parameter_counts() -> None:
    counts = {
        "bigbird-base, as BigBirdModel": count_parameters(headwise.build("bigbird-base", task="encode", device="meta")),
        "dmca-base": count_parameters(headwise.build("dmca-base", device="meta")),
    }
    # Of dmca 5 layers of 2017's decoder without memory, and 2 x 2 x 8 kernels of 3 x 64 x 64.
    layer = 4 * 512 * 513 + 2 * 512 * 2048 + 2048 + 512 + 4 * 512
    assert counts == {
        "bigbird-base, as BigBirdModel": 127_468_800,
        "dmca-base": 32_000 * 512 + 5 * layer + 2 * 2 * 8 * 3 * 64 * 64,
    }


def test_local_and_compressed_layers_alternate() -> None:
    model: Any = headwise.build("dmca-base", vocab=12, device="meta")
    kinds = [type(layer.parts[0]) for layer in model.decoder.stack.layers]
    assert kinds == [
        BlockSparseAttention,
        CompressedAttention,
        BlockSparseAttention,
        CompressedAttention,
        BlockSparseAttention,
    ]
    pattern = model.decoder.stack.layers[0].parts[0].pattern
    assert (pattern.block, pattern.left, pattern.right) == (256, 0, 0)
    experts: Any = headwise.build("dmca-tiny", vocab=12, feedforward="experts")
    assert type(experts.decoder.stack.layers[0].parts[1]).__name__ == "Experts"


def test_cost_per_token_by_length() -> None:
    """A token of BigBird costs about the same in texts of any length, one of dmca a third of what attention adds."""

    def flops(name: str, length: int, **settings: Any) -> float:
        model = headwise.build(name, vocab=12, depth=2, width=64, heads=4, device="meta", **settings)
        with FlopCounterMode(display=False) as counter:
            model(torch.zeros(1, length, dtype=torch.long, device="meta"))
        return counter.get_total_flops() / length

    long, short = (flops("bigbird-base", length, positions="sinusoid") for length in (8192, 2048))
    assert long < 1.05 * short

    def added(mixer: str) -> float:
        short, long = (flops("dmca-base", length, mixer=mixer, compressed=mixer) for length in (300, 1200))
        return long - short

    assert added("compressed") == pytest.approx(added("attention") / 3, rel=0.01)


def test_a_source_and_its_target_are_one_text() -> None:
    torch.manual_seed(0)
    model = headwise.build("dmca-tiny", vocab=12)
    assert isinstance(model, LanguageModel)
    joined = PrefixLM(model.decoder).eval()
    source, target = torch.tensor([[5, 6, 7, 8, 2, 0], [9, 4, 5, 6, 7, 2]]), torch.tensor([[1, 5, 6], [1, 7, 8]])
    state, logits = joined.start(source[1:]), []
    for tokens in target[1:].unbind(1):
        found, state = joined.step(tokens, state)
        logits.append(found)
    torch.testing.assert_close(torch.stack(logits, 1), joined(source, target)[1:])


@torch.no_grad()
def test_global_tokens_connect_all_tokens() -> None:
    """Two layers reach from one end to the other through them, and not without them."""
    mixer = {"kind": "bigbird", "block": 2, "window": 1, "random": 0, "first": 0, "last": 0}
    ids = torch.arange(40).unsqueeze(0) % 8 + 4
    edited = ids.clone()
    edited[0, 0] = 9

    def moved(extra: int) -> Any:
        torch.manual_seed(0)
        model = headwise.build("bigbird-tiny", vocab=12, mixer=mixer, extra=extra).eval()
        return (model(ids) != model(edited)).any(-1)[0]

    assert not moved(0)[2:].any() and moved(2).all()
    torch.manual_seed(0)
    model: Any = headwise.build("bigbird-tiny", vocab=12, mixer=mixer, extra=2)
    assert model.encoder.stack.tokens.weight.std() < 0.05  # begins as all other tables do
    assert not torch.equal(model(torch.full((1, 4), 5)), model(torch.full((1, 4), 6)))


def test_any_other_mixer_can_be_used() -> None:
    for name in ("bigbird", "dmca"):
        model: Any = headwise.build(f"{name}-tiny", vocab=12, mixer="attention")
        assert not any(isinstance(module, BigBirdAttention | BlockSparseAttention) for module in model.modules())
    text: Any = headwise.build("gpt2-tiny", vocab=12, mixer={"kind": "window", "left": 2})
    assert isinstance(text.decoder.stack.layers[0].parts[0], BlockSparseAttention)
