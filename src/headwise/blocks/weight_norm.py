"""Weight normalisation (Salimans and Kingma 2016): a weight vector w = g v / ||v|| has its length g as a parameter of
its own. The layers of ConvS2S have it."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

TINY = 1e-12  # keeps a row of zeros finite


def normalize_weight(weight: Tensor, gain: Tensor) -> Tensor:
    """Weight normalisation of each row: gain_i v_i / ||v_i||, (O, I) and (O,) -> (O, I)."""
    return weight * (gain / compute_row_norms(weight).clamp(min=TINY)).unsqueeze(-1)


def compute_row_norms(weight: Tensor) -> Tensor:
    """The length of each row: (O, I) -> (O,)."""
    return torch.linalg.vector_norm(weight, dim=-1)


class WeightNormLinear(nn.Module):
    """A linear layer with weight normalisation: y_i = g_i v_i x / ||v_i|| + b_i.

    v ~ N(0, variance / inputs) and g = ||v||, so that inputs of unit variance give outputs of that `variance`; biases
    are 0 (Gehring et al. 2017, section 3.5).
    """

    def __init__(self, inputs: int, outputs: int, variance: float = 1.0):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs))
        self.gain = nn.Parameter(torch.empty(outputs))
        self.bias = nn.Parameter(torch.zeros(outputs))
        init_weight_norm(self.weight, self.gain, variance)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.compute_weight(), self.bias)

    def compute_weight(self) -> Tensor:
        """The normalised weight, (O, I)."""
        return normalize_weight(self.weight, self.gain)


@torch.no_grad()
def init_weight_norm(weight: Tensor, gain: Tensor, variance: float) -> None:
    """Draw directions v (O, I) of N(0, variance / I), and set the gains to their lengths."""
    nn.init.normal_(weight, std=(variance / weight.shape[-1]) ** 0.5)
    gain.copy_(compute_row_norms(weight))
