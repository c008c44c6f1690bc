"""Low-rank adaptation (Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models").

A linear layer keeps its weight, and learns a low-rank change beside it. The names of its tensors do not change, so
checkpoints, `init_from` and patterns need not know of LoRA; the two new tensors are `down` and `up`.

DISCREPANCY: the paper adapts queries and values separately. Here queries, keys and values are one fused projection,
with one `down` for the three. The paper draws A from a Gaussian, the released code from a uniform distribution; this
file follows the paper, with the variance 1 / width, which keeps A x as large as x.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headwise.blocks.residual import make_dropout
from headwise.tuning.config import LoraConfig
from headwise.tuning.names import match_names


class LoraLinear(nn.Linear):
    """A linear layer with a LoRA adapter: W x + b + (alpha / r) B A x, equation 3, with W and b of `base`, A (`down`)
    random, B (`up`) zero.

    >>> base, x = nn.Linear(4, 6), torch.ones(1, 4)
    >>> torch.equal(LoraLinear(base, rank=2)(x), base(x))
    True
    """

    def __init__(self, base: nn.Linear, rank: int, alpha: float = 16.0, dropout: float = 0.0):
        nn.Module.__init__(self)  # not nn.Linear's: weight and bias exist already
        self.in_features, self.out_features = base.in_features, base.out_features
        self.weight = base.weight
        self.register_parameter("bias", base.bias)
        self.down = nn.Parameter(base.weight.new_empty(rank, base.in_features).normal_(std=base.in_features**-0.5))
        self.up = nn.Parameter(base.weight.new_zeros(base.out_features, rank))
        self.scale = alpha / rank
        self.drop = make_dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        change = F.linear(F.linear(self.drop(x), self.down), self.up)  # (..., in) -> (..., r) -> (..., out)
        return F.linear(x, self.weight, self.bias) + self.scale * change

    @torch.no_grad()
    def merge(self) -> nn.Linear:
        """A plain linear layer with the weight W + (alpha / r) B A."""
        merged = nn.Linear(self.in_features, self.out_features, bias=False, device="meta")
        merged.weight = nn.Parameter(torch.addmm(self.weight, self.up, self.down, alpha=self.scale))
        merged.register_parameter("bias", self.bias)
        return merged


def add_lora(model: nn.Module, config: LoraConfig) -> None:
    """Add LoRA to the linear layers that `targets` matches."""
    if not config.rank:
        return
    layers = {name: module for name, module in model.named_modules() if type(module) is nn.Linear}
    names = match_names(config.targets, layers, "tuning.lora.targets")
    adapted: dict[nn.Module, nn.Module] = {
        layers[name]: LoraLinear(layers[name], config.rank, config.alpha, config.dropout) for name in names
    }
    replace_modules(model, adapted)


def merge_lora(model: nn.Module) -> None:
    """Merge all LoRA matrices into the weights, so that inference costs nothing extra."""
    replace_modules(model, {module: module.merge() for module in model.modules() if isinstance(module, LoraLinear)})


def replace_modules(model: nn.Module, replacements: Mapping[nn.Module, nn.Module]) -> None:
    """Replace modules, wherever they are in the model."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if child in replacements:
                setattr(parent, name, replacements[child])
