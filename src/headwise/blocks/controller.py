"""The recurrent controller of a small policy.

Letters: B rows, D features, C width, A actions.
"""

from __future__ import annotations

from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

State: TypeAlias = tuple[Tensor, Tensor]  # hidden state and cell of an LSTM: (B, C) each


class Controller(nn.Module):
    """An LSTM cell and a linear layer: features -> actions. Weights have the names and the order of nn.LSTMCell, whose
    kernel cannot be called for a whole population at once (torch.vmap)."""

    def __init__(self, features: int, width: int, actions: int):
        super().__init__()
        self.cell = nn.LSTMCell(features, width)
        self.out = nn.Linear(width, actions)

    def start(self, rows: int) -> State:
        """The state at the beginning of an episode."""
        zeros = self.out.weight.new_zeros(rows, self.cell.hidden_size)
        return zeros, zeros

    def forward(self, features: Tensor, state: State) -> tuple[Tensor, State]:
        """(B, D) and the state before -> (B, A) and the state after."""
        hidden, memory = state
        gates = F.linear(features, self.cell.weight_ih, self.cell.bias_ih)
        gates = gates + F.linear(hidden, self.cell.weight_hh, self.cell.bias_hh)
        enter, keep, new, leave = gates.chunk(4, -1)  # (B, 4C) -> 4 x (B, C)
        memory = keep.sigmoid() * memory + enter.sigmoid() * new.tanh()
        hidden = leave.sigmoid() * memory.tanh()
        return self.out(hidden), (hidden, memory)


def squash(outputs: Tensor, discrete: bool) -> Tensor:
    """Continuous actions, from -1 to 1 (tanh); logits of discrete ones as they are."""
    return outputs if discrete else torch.tanh(outputs)
