"""Dynamic int8 quantisation for decoding on CPUs: a quarter of the memory traffic, and integer dot products.

Weights have a scale per output channel, max |w| / 127; inputs are quantised at run time, all rows of a batch with one
range. Accumulation is exact; the error of a product is half to one per cent. On CPUs that add two products in 16 bits
(x86 without VNNI) inputs have 7 bits, so that no sum overflows.
"""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from headwise.blocks.heads import TransposedLinear, VocabularyHead
from headwise.decode.weight_layout import to_column_major
from headwise.errors import UserError

Model = TypeVar("Model", bound=nn.Module)
MIN_WEIGHTS = 1 << 17  # of a matrix; below, quantising the inputs costs more than it saves


class Int8Linear(nn.Module):
    """x W^T + b with W in 8 bits, packed for the CPU's integer instructions."""

    def __init__(self, weight: Tensor, bias: Tensor | None):
        super().__init__()
        self.packed = pack_weight(weight, bias)

    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.quantized.linear_dynamic(x, self.packed, overflows())


class Int8Head(VocabularyHead):
    """The language model head in int8; its table stays in full precision, since an embedding may share it."""

    def __init__(self, head: VocabularyHead):
        nn.Module.__init__(self)
        self.transform, self.table, self.bias, self.pad = head.transform, head.table, head.bias, head.pad
        self.z_loss = head.z_loss
        self.product = Int8Linear(head.table.weight, head.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.product(self.transform(x))


def quantize(model: Model, min_weights: int = MIN_WEIGHTS) -> Model:
    """A copy for decoding with matrices of at least `min_weights` weights in int8; norms and embeddings stay exact.

    The members of an ensemble are quantised one by one. The copy cannot be trained.
    """
    check_quantizable(model)
    quantized = to_column_major(model).eval().requires_grad_(False)
    replacements: dict[int, nn.Module] = {}  # shared modules stay shared
    for parent in list(quantized.modules()):
        if isinstance(parent, TransposedLinear):  # reads the weight of its layer, which an int8 layer lacks
            continue
        for name, child in list(parent.named_children()):
            if id(child) not in replacements:
                replacements[id(child)] = quantize_module(child, min_weights)
            setattr(parent, name, replacements[id(child)])
    return quantized


def quantize_module(module: nn.Module, min_weights: int) -> nn.Module:
    """Weight quantisation of a linear layer or language model head to int8; other modules are returned unchanged."""
    if isinstance(module, VocabularyHead) and isinstance(module.table, nn.Embedding):
        return Int8Head(module) if module.table.weight.numel() >= min_weights else module
    if type(module) is nn.Linear and module.weight.numel() >= min_weights:
        return Int8Linear(module.weight, module.bias)
    return module


def pack_weight(weight: Tensor, bias: Tensor | None) -> Any:
    """A weight (N, K) in the packed int8 form of torch."""
    weight = weight.detach().float()
    scales = weight.abs().amax(1).clamp(min=torch.finfo(torch.float32).tiny) / 127
    zeros = torch.zeros(len(weight), dtype=torch.long)
    with warnings.catch_warnings():
        # torch deprecates quantised tensors; this one is only packed.
        warnings.filterwarnings("ignore", message="torch.quantize_per", category=UserWarning)
        integers = torch.quantize_per_channel(weight.contiguous(), scales, zeros, 0, torch.qint8)
    return torch.ops.quantized.linear_prepack(integers, None if bias is None else bias.detach().float())


@cache
def overflows() -> bool:
    """Whether int8 products of the largest inputs and weights overflow on this CPU."""
    x = torch.ones(1, 64)
    return bool(torch.ops.quantized.linear_dynamic(x, pack_weight(torch.ones(64, 64), None))[0, 0] < 63)


def check_quantizable(model: nn.Module) -> None:
    """Raise if the model cannot be quantised on this machine."""
    if torch.backends.quantized.engine == "none":
        raise UserError("--int8: this build of torch has no 8-bit kernels for this CPU; decode without it")
    if not isinstance(model, nn.Module):
        raise UserError("--int8: only PyTorch models can be quantised; use the int8 option of the engine")
    device = next(model.parameters()).device
    if device.type != "cpu":
        raise UserError(f"--int8: 8-bit decoding runs on CPUs and the model is on {device}; use --device cpu")
