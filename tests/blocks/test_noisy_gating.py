"""Noisy top-k gating, against the equations of Shazeer et al. (2017), token by token and expert by expert."""

from __future__ import annotations

from math import erf, exp
from statistics import fmean, pvariance

import pytest
import torch

from headwise.blocks.experts import ExpertsConfig, NoisyRouter
from headwise.blocks.part import BuildContext


def compute_gates_and_loads(
    logits: list[float], noise: list[float], std: list[float], top_k: int
) -> tuple[list[float], list[float]]:
    """The gates of one token, and the probability that each expert is chosen where its noise is drawn again."""
    h = [z + e * s for z, e, s in zip(logits, noise, std, strict=True)]
    kept = sorted(range(len(h)), key=lambda i: -h[i])[:top_k]
    total = sum(exp(h[i]) for i in kept)
    gates = [exp(h[i]) / total if i in kept else 0.0 for i in range(len(h))]
    load = []
    for i in range(len(h)):
        others = sorted((h[j] for j in range(len(h)) if j != i), reverse=True)
        load.append(0.5 * (1 + erf((logits[i] - others[top_k - 1]) / std[i] / 2**0.5)))
    return gates, load


@pytest.mark.parametrize("top_k", [1, 2, 3])
def test_noisy_gates_and_losses_are_those_of_the_equations(top_k: int) -> None:
    torch.manual_seed(0)
    router = NoisyRouter(5, 4, top_k, balance=0.3).double()
    assert not router.weight.any() and not router.noise.any()  # equal loads at first
    for parameter in router.parameters():
        torch.nn.init.normal_(parameter)
    x, real = torch.randn(7, 5, dtype=torch.float64), torch.tensor([True] * 6 + [False])
    torch.manual_seed(1)
    routing = router(x, real)
    torch.manual_seed(1)
    noise = torch.randn(7, 4, dtype=torch.float64)
    logits, std = x @ router.weight.T, (1 + (x @ router.noise.T).exp()).log()
    importance, load = [0.0] * 4, [0.0] * 4
    for n in range(7):
        gates, chances = compute_gates_and_loads(logits[n].tolist(), noise[n].tolist(), std[n].tolist(), top_k)
        for i, gate in zip(routing.chosen[n].tolist(), routing.gates[n].tolist(), strict=True):
            assert gate == pytest.approx(gates[i])
        assert sum(gates[i] for i in routing.chosen[n].tolist()) == pytest.approx(1)
        if real[n]:
            importance = [a + b for a, b in zip(importance, gates, strict=True)]
            load = [a + b for a, b in zip(load, chances, strict=True)]
    squared_cv = [pvariance(values) / fmean(values) ** 2 for values in (importance, load)]
    assert routing.loss.item() == pytest.approx(0.3 * sum(squared_cv))
    routing.loss.backward()
    assert router.noise.grad is not None and bool(router.noise.grad.any())


def test_evaluation_of_noisy_gates_has_no_noise() -> None:
    router = NoisyRouter(5, 3, 2).eval()
    torch.nn.init.normal_(router.weight)
    x = torch.randn(4, 5)
    one, two = router(x, None), router(x, None)
    assert torch.equal(one.gates, two.gates) and one.loss == 0
    assert not torch.equal(router.train()(x, None).gates, one.gates)


def test_where_all_experts_are_chosen_their_loads_are_equal() -> None:
    router = NoisyRouter(5, 3, 3)
    logits = torch.randn(4, 3)
    assert torch.equal(router.compute_load(logits, logits, logits.exp()), torch.ones(4, 3))


def test_noisy_gating_is_a_setting_of_the_part() -> None:
    part = ExpertsConfig(count=4, top_k=2, noisy=True).build(BuildContext(8, heads=1, hidden=12))
    assert isinstance(part.router, NoisyRouter) and part.router.top_k == 2
    with pytest.raises(ValueError, match="noisy gates sum to 1"):
        ExpertsConfig(noisy=True, normalise=False)
