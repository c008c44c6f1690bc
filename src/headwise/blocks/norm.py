"""Normalisation over the width."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class LayerNorm(nn.Module):
    """(x - mean) / sqrt(variance + eps) * gain + shift, over the width (Ba et al. 2016)."""

    def __init__(self, width: int, eps: float = 1e-5):
        super().__init__()
        self.shape = (width,)
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.shape, self.weight, self.bias, self.eps)


class RMSNorm(nn.Module):
    """x / sqrt(mean(x^2) + eps) * gain (Zhang and Sennrich 2019)."""

    def __init__(self, width: int, eps: float = 1e-6):
        super().__init__()
        self.shape = (width,)
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.shape, self.weight, self.eps)
