"""Activation functions by name, plain and gated (GLU and its kin, Shazeer 2020)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

ActivationFunction = Callable[[Tensor], Tensor]


def gelu_tanh(x: Tensor) -> Tensor:
    """The tanh form of GELU that GPT-2 and T5 v1.1 use."""
    return F.gelu(x, approximate="tanh")


def identity(x: Tensor) -> Tensor:
    return x


def relu(x: Tensor) -> Tensor:
    """max(x, 0), in place: what a linear map has just made is ours to overwrite, and a pass over memory is saved."""
    return F.relu(x, inplace=True)


PLAIN: dict[str, ActivationFunction] = {
    "relu": relu,
    "gelu": F.gelu,
    "gelu_tanh": gelu_tanh,
    "swish": F.silu,
    "elu": F.elu,
    "selu": F.selu,
    "sigmoid": torch.sigmoid,
    "softplus": F.softplus,
    "tanh": torch.tanh,
    "identity": identity,
}


GATED: dict[str, ActivationFunction] = {  # act(W1 x) * (W2 x)
    "glu": torch.sigmoid,
    "geglu": F.gelu,
    "geglu_tanh": gelu_tanh,
    "reglu": F.relu,
    "swiglu": F.silu,
    "liglu": identity,
}


Activation = Literal[
    "relu", "gelu", "gelu_tanh", "swish", "elu", "selu", "sigmoid", "softplus", "tanh", "identity",
    "glu", "geglu", "geglu_tanh", "reglu", "swiglu", "liglu",
]  # fmt: skip
