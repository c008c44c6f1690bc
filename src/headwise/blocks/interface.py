"""Checks of what a user's config builds, once per stack: a part has the interface of `Part`, keeps the shape of its
inputs and, if it claims to be causal, reads no later tokens. `headwise.testing` checks all that it declares."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
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
_checks_claims: ContextVar[bool] = ContextVar("checks_claims", default=True)
LEAK = 1e-3  # share of the largest output by which later tokens may change earlier outputs: rounding, as of an FFT


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


def check_part_outputs(part: Part, build_ctx: BuildContext, where: str) -> None:
    """Check that a part gives back the shape of its inputs, and that it is causal if it claims so, on a copy in
    evaluation mode. A part that cannot run on these few tokens (it may need an image or another length) is not checked
    here."""
    length, memory_length = LENGTHS
    try:
        trial = deepcopy(part).eval()
        example, generator = _find_tensor(trial), torch.Generator().manual_seed(0)
        widths = build_ctx.width, build_ctx.memory_width or build_ctx.width
        x, edited, encoded = (
            torch.randn(2, tokens, width, generator=generator).to(example)
            for tokens, width in ((length, widths[0]), (length, widths[0]), (memory_length, widths[1]))
        )
        edited[:, : length // 2] = x[:, : length // 2]
        ctx = Context({"encoder": Stream.of(encoded)})
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            outputs, others = (trial(Stream.of(inputs), ctx) for inputs in (x, edited))
    except Exception:
        return
    name = f"{where}: {type(part).__name__}"
    _check_shape(outputs, x, name)
    if _checks_claims.get() and part.properties.causal and part.properties.exact and not x.is_meta:
        _check_causal(outputs[:, : length // 2], others[:, : length // 2], name)


@contextmanager
def skip_claims() -> Iterator[None]:
    """Build parts whatever they claim, as `headwise.testing` does to say all that is wrong with them."""
    token = _checks_claims.set(False)
    try:
        yield
    finally:
        _checks_claims.reset(token)


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


def _check_causal(outputs: Tensor, others: Tensor, where: str) -> None:
    """Compare the outputs of the first tokens, where later tokens differ."""
    change = (others - outputs).abs().max().item()
    if change > LEAK * outputs.abs().max().item():
        raise UserError(
            f"{where} claims causal=True, but its outputs change by {change:.3g} with later tokens; do not read these, "
            "or declare causal=False"
        )


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
