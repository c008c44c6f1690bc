"""Decoding with 8-bit weights on CPUs: a quarter of the memory to read, and integer dot products.

Each output channel of a weight has a scale of its own, max |w| / 127; inputs are scaled when they come, all rows of a
batch by one range (dynamic quantisation). Accumulation is exact, so a product errs by half to one per cent. Where the
CPU adds two products in 16 bits (x86 without VNNI), inputs have 7 bits, so that no sum overflows.
"""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from headwise.blocks.heads import VocabularyHead
from headwise.decode.weight_layout import to_column_major
from headwise.errors import UserError

Model = TypeVar("Model", bound=nn.Module)
LEAST = 1 << 17  # weights of a matrix below which scaling the inputs costs more than it saves


class Int8Linear(nn.Module):
    """x W^T + b with W in 8 bits, packed for the CPU's integer instructions."""

    def __init__(self, weight: Tensor, bias: Tensor | None):
        super().__init__()
        self.packed = packed(weight, bias)

    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.quantized.linear_dynamic(x, self.packed, overflows())


class Int8Head(VocabularyHead):
    """The vocabulary head in 8 bits; its table stays as it is, for the embedding that may share it."""

    def __init__(self, head: VocabularyHead):
        nn.Module.__init__(self)
        self.before, self.table, self.bias, self.pad = head.before, head.table, head.bias, head.pad
        self.product = Int8Linear(head.table.weight, head.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.product(self.before(x))


def quantize(model: Model, least: int = LEAST) -> Model:
    """A copy for decoding whose matrices of at least `least` weights have 8 bits; norms and lookups stay exact.

    An ensemble becomes one of quantised members. The copy cannot be trained.
    """
    check(model)
    small = to_column_major(model).eval().requires_grad_(False)
    made: dict[int, nn.Module] = {}  # a matrix used in two places stays one
    for parent in list(small.modules()):
        for name, child in list(parent.named_children()):
            if id(child) not in made:
                made[id(child)] = quantize_model(child, least)
            setattr(parent, name, made[id(child)])
    return small


def quantize_model(module: nn.Module, least: int) -> nn.Module:
    """Weight quantisation of a model to 8 bits."""
    if isinstance(module, VocabularyHead) and module.table.weight.numel() >= least:
        return Int8Head(module)
    if type(module) is nn.Linear and module.weight.numel() >= least:
        return Int8Linear(module.weight, module.bias)
    return module


def packed(weight: Tensor, bias: Tensor | None) -> Any:
    """(N, K) floats -> torch's packed form."""
    weight = weight.detach().float()
    scales = weight.abs().amax(1).clamp(min=torch.finfo(torch.float32).tiny) / 127
    zeros = torch.zeros(len(weight), dtype=torch.long)
    with warnings.catch_warnings():
        # torch announces the end of quantised tensors; this one lives only until it is packed.
        warnings.filterwarnings("ignore", message="torch.quantize_per", category=UserWarning)
        integers = torch.quantize_per_channel(weight.contiguous(), scales, zeros, 0, torch.qint8)
    return torch.ops.quantized.linear_prepack(integers, None if bias is None else bias.detach().float())


@cache
def overflows() -> bool:
    """Whether 8-bit products with the largest inputs and weights come out wrong on this CPU."""
    x = torch.ones(1, 64)
    return bool(torch.ops.quantized.linear_dynamic(x, packed(torch.ones(64, 64), None))[0, 0] < 63)


def check(model: nn.Module) -> None:
    """Refuse what cannot run, before anything is copied."""
    if torch.backends.quantized.engine == "none":
        raise UserError("--int8: this build of torch has no 8-bit kernels for this CPU; decode without it")
    if not isinstance(model, nn.Module):
        raise UserError("--int8: only models that run on torch can be quantised here; ask the engine itself")
    device = next(model.parameters()).device
    if device.type != "cpu":
        raise UserError(f"--int8: 8-bit decoding runs on CPUs and the model is on {device}; use --device cpu")
