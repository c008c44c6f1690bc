"""Performer and linear Transformer: sizes, and decoding with a state of constant size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import headwise
from headwise.blocks.mixers.favor import Performer
from headwise.blocks.mixers.linear import LinearAttention
from headwise.blocks.stack import count_parameters
from headwise.experiment.config import Experiment

FILE = Path(__file__).parents[2] / "experiments" / "performer-gpt.toml"
COUNTS = {
    "performer-base": 38_158_984,
    "performer-protein": 75_978_781,
    "linear-transformer-mnist": 6_383_616,
    "linear-transformer-cifar": 12_701_696,
}


@pytest.mark.parametrize(("name", "count"), COUNTS.items())
def test_parameters_are_those_of_the_transformer_with_its_own_attention(name: str, count: int) -> None:
    model = headwise.build(name, device="meta")
    assert count_parameters(model) == count_parameters(headwise.build(name, device="meta", mixer="attention")) == count


@pytest.mark.parametrize(("name", "mixer"), [("performer", Performer), ("linear-transformer", LinearAttention)])
def test_all_self_attention_is_linear(name: str, mixer: type) -> None:
    model: Any = headwise.build(f"{name}-tiny", vocab=12, task="transduce")
    kinds = [
        [type(part) for part in layer.parts] for layer in (*model.encoder.stack.layers, *model.decoder.stack.layers)
    ]
    assert {kind[0] for kind in kinds} == {mixer}
    assert [kind[1].__name__ for kind in kinds] == ["FeedForward"] * 2 + ["Attention"] * 2


def test_softmax_weights_can_be_loaded() -> None:
    """With many features a Performer says nearly what the model with attention says, from the same weights."""
    torch.manual_seed(0)
    model = headwise.build("gpt2-tiny", vocab=12).eval()
    other = headwise.build("gpt2-tiny", vocab=12, mixer={"kind": "performer", "features": 2048}).eval()
    missing, unexpected = other.load_state_dict(model.state_dict(), strict=False)
    assert not unexpected and all(".projection." in name for name in missing)
    ids = torch.randint(4, 12, (2, 30))
    assert (model(ids) - other(ids)).abs().max() < 0.05 * model(ids).abs().max()


def test_the_gpt_of_the_experiment_learns_and_decodes_with_constant_state() -> None:
    torch.manual_seed(0)
    config = Experiment.read(FILE).model.replace(width=32, heads=2, depth=2, dropout=0.0)
    model = config.build(16, task="language-model")
    text = torch.tensor([[1, 7, 4, 9, 4, 7, 12, 5, 4, 7, 4, 11, 6, 9, 8, 2]])  # what follows 4 or 7 depends on more
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003, fused=True)
    for _ in range(100):
        optimizer.zero_grad()
        loss = model(text[:, :-1], labels=text[:, 1:])
        (loss.total / loss.count).backward()
        optimizer.step()
    model.eval()
    state, tokens, written, sizes = model.start(text[:, :3]), text[:, 3], [], set()
    for _ in range(12):
        logits, state = model.step(tokens, state)
        tokens = logits.argmax(-1)
        written.append(int(tokens))
        sizes.add(sum(tensor.numel() for tensor in state.cache.states.values()))
    assert written == text[0, 4:].tolist()
    assert sizes == {2 * 2 * 64 * 17} and not state.cache.growing  # layers, heads, features, head_width + 1
