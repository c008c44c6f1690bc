"""Activation checkpointing changes neither losses nor gradients, and keeps fewer activations."""

import pytest
import torch

from headwise import build
from headwise.blocks.record import collect
from headwise.blocks.stack import enable_checkpointing
from headwise.errors import UserError
from headwise.models.cost import count_saved_bytes, make_inputs

# texts and images; layers that share masks and position biases, add losses of routers, drop at random, stand twice
TEXTS = ("transformer", "t5", "bert", "albert", "gpt2", "llama", "switch", "transformer-xl", "reformer", "fnet")
IMAGES = ("vit", "swin", "cait")


def learn(name, checkpointing):
    torch.manual_seed(0)
    model = build(f"{name}-tiny", dropout=0.1, **({"vocab": 30} if name in TEXTS else {})).double().train()
    if checkpointing:
        enable_checkpointing(model)
    torch.manual_seed(1)
    with collect("aux") as recorded:
        if name in IMAGES:
            total = model(torch.randn(2, 1, 16, 16, dtype=torch.double)).square().sum()
        else:
            ids = torch.randint(4, 30, (2, 16))
            total = model(*(ids for _ in make_inputs(model, 2, 16)), labels=ids).total
    losses = [total, *recorded.list_values("aux")]
    sum(losses).backward()
    return [loss.item() for loss in losses], {key: weight.grad for key, weight in model.named_parameters()}


@pytest.mark.parametrize("name", [*TEXTS, *IMAGES])
def test_losses_and_gradients_are_the_same(name):
    losses, gradients = learn(name, checkpointing=False)
    same_losses, recomputed = learn(name, checkpointing=True)
    assert same_losses == pytest.approx(losses, rel=1e-12)
    for key, gradient in gradients.items():
        torch.testing.assert_close(recomputed[key], gradient, rtol=1e-9, atol=1e-12, msg=key)


def test_activations_of_one_layer_are_stored():
    def count(checkpointing):
        model = build("gpt2-small", device="meta")
        if checkpointing:
            enable_checkpointing(model)
        return count_saved_bytes(model, 2, 64, ()) - count_saved_bytes(model, 1, 64, ())

    assert count(True) < count(False) / 4


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("alphafold1-tiny", "train.checkpointing: this model has no stack"),
        ("funnel-tiny", "FunnelStack does not run layer"),
    ],
)
def test_models_without_such_layers_are_refused(name, message):
    with pytest.raises(UserError, match=message):
        enable_checkpointing(build(name, device="meta"))
