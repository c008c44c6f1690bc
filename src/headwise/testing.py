"""Assertions for tests of parts and models that hold on every CPU.

Libraries round differently with the instruction set, the number of threads and the shape of a product, so equality to
the last bit is no test of the maths. What must not depend on something is tested by its gradient, which is exactly zero
whatever the rounding, and by edits, up to rounding; what is computed in another way is tested up to a bound that scales
with the values.

    assert_parity       two ways to compute the same tensor
    assert_independent  some outputs of a function do not depend on some of its inputs
    assert_causal       outputs do not depend on later inputs
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

Index = Any  # what stands between the brackets of a tensor
ROUNDING = 2.0**12  # times the dtype's epsilon: some thousand roundings that all go the same way


def assert_parity(actual: Tensor, expected: Tensor, tolerance: float = 1e-5) -> None:
    """No element differs by more than `tolerance` times the largest finite one; infinities and NaN are the same."""
    assert actual.shape == expected.shape, f"the shape is {tuple(actual.shape)}, expected {tuple(expected.shape)}"
    actual, expected = actual.detach().double(), expected.detach().double()
    finite = expected.isfinite()
    assert torch.equal(actual[~finite].nan_to_num(), expected[~finite].nan_to_num()), "other elements are not finite"
    if not finite.any():
        return
    largest, error = expected[finite].abs().max().item(), (actual - expected)[finite].abs().max().item()
    assert error <= tolerance * largest, f"differs by {error:.3g} where the largest value is {largest:.3g}"


def assert_independent(function: Callable[[Tensor], Tensor], x: Tensor, outputs: Index, inputs: Index) -> None:
    """`function(x)[outputs]` does not depend on `x[inputs]`: the gradient is exactly zero, and other values there make
    no difference beyond rounding."""
    x = x.detach().clone().requires_grad_()
    before = function(x)
    (gradient,) = torch.autograd.grad(_project(before[outputs]), x, allow_unused=True)
    assert gradient is None or not gradient[inputs].any(), "outputs have a gradient with respect to these inputs"
    edited = x.detach().clone()
    edited[inputs] = torch.randn(edited[inputs].shape, dtype=x.dtype, generator=torch.Generator().manual_seed(1))
    assert_parity(function(edited)[outputs], before[outputs], rounding(x.dtype))


def assert_causal(function: Callable[[Tensor], Tensor], x: Tensor, step: int = 1) -> None:
    """For (B, T, C) inputs, no output depends on a later input, tested at every `step`-th token; and each does depend
    on its own, so that a function that ignores its inputs fails."""
    for token in range(step, x.shape[1], step):
        assert_independent(function, x, (slice(None), slice(None, token)), (slice(None), slice(token, None)))
    x = x.detach().clone().requires_grad_()
    (gradient,) = torch.autograd.grad(_project(function(x)), x)
    assert gradient.any(), "no output depends on any input"


@contextmanager
def probe_embeddings(model: nn.Module, ids: Tensor) -> Iterator[list[Tensor]]:
    """Zeros that are added to the vectors of these (B, T) ids, (B, T, C) each, to take gradients with respect to. The
    model may look up special tokens before and after them."""
    probes: list[Tensor] = []
    length = ids.shape[1]

    def add_probe(table: nn.Module, args: tuple[Tensor, ...], vectors: Tensor) -> Tensor:
        given = args[0]
        if given.dim() != 2 or len(given) != len(ids):
            return vectors
        for start in range(given.shape[1] - length + 1):
            if torch.equal(given[:, start : start + length], ids):
                probe = torch.zeros_like(vectors[:, start : start + length], requires_grad=True)
                probes.append(probe)
                return vectors + nn.functional.pad(probe, (0, 0, start, given.shape[1] - length - start))
        return vectors

    handles = [each.register_forward_hook(add_probe) for each in model.modules() if isinstance(each, nn.Embedding)]
    try:
        yield probes
    finally:
        for handle in handles:
            handle.remove()


def assert_causal_in_embeddings(model: nn.Module, forward: Callable[[], Tensor], ids: Tensor) -> None:
    """The outputs (B, T, ...) of `forward()` have gradients that are exactly zero with respect to the vectors of later
    tokens, and others with respect to some earlier ones. A model without parameters, which counts, has no gradients."""
    if not any(True for _ in model.parameters()):
        return
    some = False
    for token in range(1, ids.shape[1] + 1):
        with probe_embeddings(model, ids) as probes:
            outputs = forward()  # anew each time: reversible layers go back once
        assert probes, "the model looks up no vectors of these tokens"
        found = torch.autograd.grad(_project(outputs[:, :token]), probes, allow_unused=True)
        gradients = [each for each in found if each is not None]
        assert not any(each[:, token:].any() for each in gradients), f"an output before token {token} looks ahead"
        some = some or any(bool(each[:, :token].any()) for each in gradients)
    assert some, "no output depends on any token"


def rounding(dtype: torch.dtype) -> float:
    """How much of the largest value rounding may change, over a model of some layers."""
    return ROUNDING * torch.finfo(dtype).eps


def _project(outputs: Tensor) -> Tensor:
    """A random linear form of outputs, whose gradient no symmetry cancels."""
    directions = torch.randn(outputs.shape, dtype=outputs.dtype, generator=torch.Generator().manual_seed(0))
    return (outputs * directions).sum()
