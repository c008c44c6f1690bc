"""The feed-forward network: activations and gated activations against their formulas."""

import math
from typing import get_args

import pytest
import torch
from torch import Tensor

from headwise.blocks.feedforward import ACTIVATIONS, GATED_ACTIVATIONS, Activation, FeedForward


def gelu(x: Tensor) -> Tensor:
    return x * (1 + torch.erf(x / math.sqrt(2))) / 2


def gelu_tanh(x: Tensor) -> Tensor:
    return x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2


def sigmoid(x: Tensor) -> Tensor:
    return 1 / (1 + torch.exp(-x))


FORMULAS = {
    "relu": lambda x: x.clamp(min=0),
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
    "swish": lambda x: x * sigmoid(x),
    "elu": lambda x: torch.where(x > 0, x, torch.exp(x) - 1),
    "selu": lambda x: 1.0507009873554805 * torch.where(x > 0, x, 1.6732632423543772 * (torch.exp(x) - 1)),
    "sigmoid": sigmoid,
    "softplus": lambda x: torch.log(1 + torch.exp(x)),
    "tanh": lambda x: (torch.exp(x) - torch.exp(-x)) / (torch.exp(x) + torch.exp(-x)),
    "identity": lambda x: x,
}
GATES = {
    "glu": sigmoid,
    "geglu": gelu,
    "geglu_tanh": gelu_tanh,
    "reglu": FORMULAS["relu"],
    "swiglu": FORMULAS["swish"],
    "liglu": FORMULAS["identity"],
}


def test_every_name_that_a_config_takes_is_covered() -> None:
    assert {*FORMULAS, *GATES} == {*get_args(Activation)} == {*ACTIVATIONS, *GATED_ACTIVATIONS}


@pytest.mark.parametrize("bias", [False, True], ids=["plain", "bias"])
@pytest.mark.parametrize("name", [*FORMULAS, *GATES])
def test_is_its_formula(name: str, bias: bool) -> None:
    part = FeedForward(6, 10, name, bias).double()
    x = 2 * torch.randn(2, 5, 6, dtype=torch.float64)
    inner = x @ part.inner.weight.t() + (part.inner.bias if bias else 0)
    if name in GATES:  # act(W1 x) * (W2 x): the gate is the first half
        assert part.inner.out_features == 20
        hidden = GATES[name](inner[..., :10]) * inner[..., 10:]
    else:
        hidden = FORMULAS[name](inner)
    expected = hidden @ part.outer.weight.t() + (part.outer.bias if bias else 0)
    torch.testing.assert_close(part(x), expected)


def test_positions_are_independent() -> None:
    part, x = FeedForward(6, 10, "swiglu"), torch.randn(1, 5, 6)
    torch.testing.assert_close(part(x)[:, 3:4], part(x[:, 3:4]))
