"""Low-rank adaptation (Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models").

A linear map keeps its weight, and beside it learns a change of small rank. Names of tensors stay as they are, so that
checkpoints, `init_from` and patterns need to know nothing of it; the two new tensors are `down` and `up`.

DISCREPANCY: the paper adapts queries and values apart. Here queries, keys and values are one product, and so is their
change, with one `down` for the three. The paper draws A from a Gaussian, the released code uniformly; so do we as the
paper, with the variance 1 / width that keeps A x as large as x.
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
    """A linear layer with LoRA: W x + b + (alpha / r) B A x, equation 3: W and b of `base`, A (`down`) random, B (`up`)
    zero.

    >>> base, x = nn.Linear(4, 6), torch.ones(1, 4)
    >>> torch.equal(LoraLinear(base, rank=2)(x), base(x))
    True
    """

    def __init__(self, base: nn.Linear, rank: int, alpha: float = 16.0, dropout: float = 0.0):
        nn.Module.__init__(self)  # weight and bias exist
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
        """The same map as one matrix, W + (alpha / r) B A."""
        plain = nn.Linear(self.in_features, self.out_features, bias=False, device="meta")
        plain.weight = nn.Parameter(torch.addmm(self.weight, self.up, self.down, alpha=self.scale))
        plain.register_parameter("bias", self.bias)
        return plain


def add_lora(model: nn.Module, config: LoraConfig) -> None:
    """Put low-rank maps beside the linear maps that the config's patterns name."""
    if not config.rank:
        return
    maps = {name: module for name, module in model.named_modules() if type(module) is nn.Linear}
    names = match_names(config.targets, maps, "tuning.lora.targets")
    replace_modules(
        model, {maps[name]: LoraLinear(maps[name], config.rank, config.alpha, config.dropout) for name in names}
    )


def merge_lora(model: nn.Module) -> None:
    """Fold all low-rank maps into plain ones: nothing is left to be slower than before."""
    replace_modules(model, {module: module.merge() for module in model.modules() if isinstance(module, LoraLinear)})


def replace_modules(model: nn.Module, others: Mapping[nn.Module, nn.Module]) -> None:
    """Put other modules in place of some, wherever they stand."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if child in others:
                setattr(parent, name, others[child])
