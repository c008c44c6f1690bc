"""FNet, shared workspace and MLP-Mixer for texts: published sizes and properties."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import headwise
from headwise.blocks.stack import count_parameters


@pytest.mark.parametrize(("task", "count"), [("encode", 82_861_056), ("masked", 83_486_722)])
def test_fnet_has_the_parameters_of_the_released_one(task: str, count: int) -> None:
    model: Any = headwise.build("fnet-base", task=task, device="meta")
    assert count_parameters(model) == count
    assert count_parameters(model.encoder.stack.layers[0].parts[0]) == 0


@torch.no_grad()
def test_only_the_weights_of_a_mixer_depend_on_the_position() -> None:
    mixing = {"mixer": {"kind": "tokens", "max_length": 8}, "positions": "none", "dropout": 0.0}
    model = headwise.build("bert-tiny", vocab=12, outputs=9, task="tag", **mixing).eval()
    ids, order = torch.tensor([[5, 6, 7, 8]]), [2, 0, 3, 1]
    assert torch.equal(model.encoder.embed(ids).x[:, order], model.encoder.embed(ids[:, order]).x)
    assert not torch.allclose(model(ids)[:, order], model(ids[:, order]))


def test_the_workspace_shares_weights_across_layers() -> None:
    built: list[Any] = [headwise.build("workspace", depth=depth, device="meta") for depth in (1, 8)]
    shallow, deep = built
    assert count_parameters(shallow) == count_parameters(deep)
    mixer = deep.encoder.stack.layers[0].parts[0]
    assert mixer.slots == 8 and mixer.competition[0].count == 5
