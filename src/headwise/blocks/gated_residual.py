"""Gated residual connections: a gated recurrent unit between the residual stream and the output of a part (Universal
Transformer in the code of Narang et al. 2021; the unit is that of Cho et al. 2014).

DISCREPANCY: the code of Narang et al. normalises the inputs of the second gate twice, and bounds the candidate by a
sigmoid, where the GRU of Cho et al. has tanh; here inputs are normalised once, and the candidate has the sigmoid.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from headwise.blocks.decode_step import FunctionStep
from headwise.blocks.norm import LayerNorm
from headwise.blocks.residual import PreNorm, ResidualAdd, Wiring, WiringConfig


class GruGate(nn.Module):
    """Gated recurrent unit of the stream x and a part's output y, with layer norms n of both:

    u = sigmoid(W_u [n(x), n(y)]), r = sigmoid(W_r [n(x), n(y)]), c = sigmoid(W_c [n(r x), n(y)]), (1 - u) y + u c
    """

    def __init__(self, width: int):
        super().__init__()
        self.stream_norm, self.branch_norm, self.reset_norm = (LayerNorm(width) for _ in range(3))
        self.gates = nn.Linear(2 * width, 2 * width)
        self.candidate = nn.Linear(2 * width, width)

    def forward(self, x: Tensor, branch: Tensor) -> Tensor:
        normed = self.branch_norm(branch)
        gates = self.gates(torch.cat((self.stream_norm(x), normed), dim=-1)).sigmoid()  # (..., 2C) -> (..., 2C)
        update, reset = gates.chunk(2, dim=-1)
        candidate = self.candidate(torch.cat((self.reset_norm(reset * x), normed), dim=-1)).sigmoid()
        return (1 - update) * branch + update * candidate


class GatedAdd(nn.Module, FunctionStep):
    """A residual add whose branch goes through a gate: add(x, gate(x, f(x)))."""

    def __init__(self, add: nn.Module, gate: nn.Module):
        super().__init__()
        self.add, self.gate = add, gate

    def forward(self, x: Tensor, branch: Tensor) -> Tensor:
        output: Tensor = self.add(x, self.gate(x, branch))
        return output


class GruPreNorm(PreNorm):
    """Gated pre-norm: x + gate(x, f(norm(x))) with a gated recurrent unit for each part."""

    def __init__(
        self, parts: Sequence[nn.Module], norm: Callable[[], nn.Module], add: Callable[[], nn.Module] = ResidualAdd
    ):
        width = len(norm().get_parameter("weight"))
        super().__init__(parts, norm, lambda: GatedAdd(add(), GruGate(width)))


class GruConfig(WiringConfig):
    """x + gate(x, f(norm(x))), where the gate is a gated recurrent unit of stream and branch"""

    kind: Literal["gru"] = "gru"

    def build(self) -> type[Wiring]:
        return GruPreNorm
