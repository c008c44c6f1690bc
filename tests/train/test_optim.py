import copy

import pytest
import torch
from torch import nn

from headwise.config.train import AdamW
from headwise.train.optim import adam, dump, load, update

BETAS, EPS = (0.9, 0.98), 1e-9


def backward(model: nn.Module, scale: float = 1.0) -> None:
    torch.manual_seed(1)
    (scale * model(torch.randn(6, 3)).square().sum()).backward()


@pytest.mark.parametrize("clip", [0.0, 0.01, 1e6])
def test_an_update_is_adam_on_the_clipped_mean_gradient(clip):
    ours = nn.Linear(3, 2)
    theirs = copy.deepcopy(ours)
    optimizer = adam(ours, BETAS, EPS)
    reference = torch.optim.Adam(theirs.parameters(), lr=0.01, betas=BETAS, eps=EPS)
    for _ in range(3):
        backward(ours)
        norm = update(optimizer, torch.tensor(6.0), rate=0.01, clip=clip)
        reference.zero_grad()
        backward(theirs, 1 / 6)
        wanted = nn.utils.clip_grad_norm_(theirs.parameters(), clip or float("inf"))
        reference.step()
        torch.testing.assert_close(norm, wanted)
    torch.testing.assert_close(ours.weight, theirs.weight, rtol=1e-5, atol=1e-6)
    assert ours.weight.grad is None


def test_a_gradient_that_is_not_finite_changes_nothing():
    model = nn.Linear(3, 2)
    optimizer = adam(model, BETAS, EPS)
    backward(model)
    update(optimizer, torch.tensor(6.0), 0.01, 1.0)
    before = copy.deepcopy((model.state_dict(), dump(optimizer, model)))
    for poison in (float("nan"), float("inf")):
        backward(model, poison)
        assert not update(optimizer, torch.tensor(6.0), 0.01, 1.0).isfinite()
    for now, then in zip((model.state_dict(), dump(optimizer, model)), before, strict=True):
        assert all(torch.equal(now[name], then[name]) for name in then)


def test_biases_norms_and_embeddings_are_not_decayed():
    model = nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 3), nn.LayerNorm(3))
    decayed = {
        decay: {id(weight) for group in AdamW(weight_decay=0.1, decay_embeddings=decay).build(model).param_groups
                if group["weight_decay"] for weight in group["params"]}
        for decay in (False, True)
    }  # fmt: skip
    assert decayed[False] == {id(model[1].weight)}
    assert decayed[True] == {id(model[1].weight), id(model[0].weight)}


def test_dumped_state_goes_to_the_same_parameters_however_groups_are_cut():
    model = nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3))
    first, second = adam(model, BETAS, EPS), adam(model, BETAS, EPS, weight_decay=0.1)
    backward(model)
    update(first, torch.tensor(1.0), 0.01, 0.0)
    load(second, model, dump(first, model))
    for weight in model.parameters():
        assert all(torch.equal(second.state[weight][what], first.state[weight][what]) for what in first.state[weight])
