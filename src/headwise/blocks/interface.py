"""Checks of what a user's config builds, once per stack: a part has the interface of `Part` and keeps the shape of its
inputs. `headwise.testing` checks what it computes."""

from __future__ import annotations

from copy import deepcopy
from inspect import signature
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from headwise.blocks.stream import Context, Part, Properties, Stream
from headwise.errors import UserError

if TYPE_CHECKING:
    from headwise.blocks.part import BuildContext

LENGTHS = 5, 3  # tokens of the trial's stream, and of the memory that cross-attention reads


def check_part_interface(part: Any, where: str) -> Part:
    """Check that a part is a `Part`, with `properties` and `transform`; `where` begins the error."""
    name = type(part).__name__
    if not isinstance(part, Part):
        raise UserError(
            f"{where}.build returns {name}, which is not a Part; "
            "subclass headwise.blocks.stream.Part and write transform(self, stream, ctx)"
        )
    if not isinstance(part.properties, Properties):
        remedy = "write @property above it" if callable(part.properties) else "return Properties(...)"
        raise UserError(f"{where}: properties of {name} is not a property that returns Properties; {remedy}")
    try:
        signature(part.transform).bind(None, None)
    except TypeError:
        taken = ", ".join(signature(type(part).transform).parameters)
        raise UserError(f"{where}: {name}.transform({taken}): write transform(self, stream, ctx)") from None
    return part


def check_part_shape(part: Part, build_ctx: BuildContext, where: str) -> None:
    """Check that a part gives back the shape of its inputs, on a copy in evaluation mode. A part that cannot run on
    these few tokens (it may need an image or another length) is not checked here."""
    length, memory_length = LENGTHS
    try:
        trial = deepcopy(part).eval()
        example = _find_tensor(trial)
        x = example.new_zeros(2, length, build_ctx.width)
        memory = Stream.of(example.new_zeros(2, memory_length, build_ctx.memory_width or build_ctx.width))
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            outputs = trial(Stream.of(x), Context({"encoder": memory}))
    except Exception:
        return
    _check_shape(outputs, x, f"{where}: {type(part).__name__}")


def check_norm(norm: Any, width: int, where: str) -> None:
    """Check that a norm is a module that gives back the shape of its inputs."""
    if not isinstance(norm, nn.Module):
        raise UserError(f"{where}.build returns {type(norm).__name__}, which is no module; return an nn.Module")
    x = _find_tensor(norm).new_zeros(2, LENGTHS[0], width)
    try:
        with torch.no_grad():
            outputs = deepcopy(norm).eval()(x)
    except TypeError as error:
        raise UserError(f"{where}: {type(norm).__name__} cannot be called with a tensor: {error}") from None
    _check_shape(outputs, x, f"{where}: {type(norm).__name__}")


def _find_tensor(module: nn.Module) -> Tensor:
    """A floating-point tensor of the module's dtype and device."""
    tensors = (tensor for tensor in chain(module.parameters(), module.buffers()) if tensor.is_floating_point())
    return next(tensors, torch.empty(0))


def _check_shape(outputs: Any, x: Tensor, where: str) -> None:
    if not isinstance(outputs, Tensor):
        raise UserError(f"{where} returns {type(outputs).__name__}; return a tensor of the shape of its inputs")
    if outputs.shape != x.shape:
        raise UserError(
            f"{where} turns inputs of {tuple(x.shape)} into outputs of {tuple(outputs.shape)}; "
            "return the shape of the inputs, (rows, length, width)"
        )
