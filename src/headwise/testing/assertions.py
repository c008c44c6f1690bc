"""Assertions for tests of parts and models, which hold on every CPU.

Libraries round differently with the instruction set, the number of threads and the shape of a product, so equality to
the last bit is no test of the maths. What must not depend on something is tested by its gradient, which is exactly zero
whatever the rounding, and by edits, up to rounding; what is computed in another way is tested up to a bound that scales
with the values.

    assert_parity                two ways to compute the same tensor
    assert_independent           some outputs of a function do not depend on some of its inputs
    assert_causal                outputs do not depend on later inputs
    assert_causal_in_embeddings  the same of a model, by the embeddings of its tokens
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import EllipsisType
from typing import TypeAlias, TypeVar

import torch
from torch import Tensor, nn

from headwise.blocks.heads import VocabularyHead
from headwise.blocks.token_embeddings import AdaptiveEmbedding
from headwise.text import PAD

Indexer: TypeAlias = int | slice | Tensor | EllipsisType
Index: TypeAlias = Indexer | tuple[Indexer, ...]  # what stands between the brackets of a tensor
Module = TypeVar("Module", bound=nn.Module)
GRADIENT_TOLERANCE = 1e-13  # share of the largest gradient that rounding may leave, of an FFT in float64
ROUNDING = 2.0**12  # times the dtype's epsilon: some thousand roundings that all go the same way


def compute_expected_loss(model: object, logits: Tensor, labels: Tensor, label_smoothing: float) -> Tensor:
    """The loss of logits (N, V) against labels (N,), with the z-loss that the model's output layer sets."""
    loss = nn.functional.cross_entropy(
        logits, labels, ignore_index=PAD, label_smoothing=label_smoothing, reduction="sum"
    )
    modules = model.modules() if isinstance(model, nn.Module) else ()
    z_loss = max((module.z_loss for module in modules if isinstance(module, VocabularyHead)), default=0.0)
    return loss + z_loss * logits[labels != PAD].logsumexp(-1).square().sum()


def assert_parity(actual: Tensor, expected: Tensor, tolerance: float = 1e-5) -> None:
    """No element differs by more than `tolerance` times the largest finite one; infinities and NaN are equal."""
    assert actual.shape == expected.shape, f"the shape is {tuple(actual.shape)}, expected {tuple(expected.shape)}"
    actual, expected = actual.detach().double(), expected.detach().double()
    finite = expected.isfinite()
    assert torch.equal(actual[~finite].nan_to_num(), expected[~finite].nan_to_num()), "other elements are not finite"
    if not finite.any():
        return
    largest, error = expected[finite].abs().max().item(), (actual - expected)[finite].abs().max().item()
    assert error <= tolerance * largest, (
        f"differs by {error:.3g} where the largest value is {largest:.3g} and {tolerance * largest:.3g} is allowed"
    )


def assert_independent(
    function: Callable[[Tensor], Tensor],
    x: Tensor,
    outputs: Index,
    inputs: Index,
    edits: bool = True,
    tolerance: float = 0.0,
) -> None:
    """`function(x)[outputs]` does not depend on `x[inputs]`: the gradient is exactly zero, and, with `edits`, other
    values there make no difference beyond rounding. With a `tolerance`, the gradient may be that share of the largest
    one: a convolution by FFT adds and subtracts what it does not read."""
    x = x.detach().clone().requires_grad_()
    before = function(x)
    (gradient,) = torch.autograd.grad(_project(before[outputs]), x, allow_unused=True)
    slope = 0.0 if gradient is None else gradient[inputs].abs().amax().item()
    allowed = 0.0 if gradient is None else tolerance * gradient.abs().amax().item()
    assert slope <= allowed, f"outputs have a gradient of {slope:.3g} with respect to these inputs"
    if not edits:
        return
    edited = x.detach().clone()
    edited[inputs] = torch.randn(edited[inputs].shape, dtype=x.dtype, generator=torch.Generator().manual_seed(1))
    try:
        assert_parity(function(edited)[outputs], before[outputs], rounding(x.dtype))
    except AssertionError as error:
        raise AssertionError(f"with other values of these inputs an output {error}") from None


def assert_causal(function: Callable[[Tensor], Tensor], x: Tensor, step: int = 1, *, tolerance: float = 0.0) -> None:
    """For (B, T, C) inputs, no output depends on a later input, tested at every `step`-th token; and each does depend
    on its own, so that a function that ignores its inputs fails. `tolerance` is that of `assert_independent`."""
    for token in range(step, x.shape[1], step):
        outputs, inputs = (slice(None), slice(None, token)), (slice(None), slice(token, None))
        try:
            assert_independent(function, x, outputs, inputs, tolerance=tolerance)
        except AssertionError as error:
            raise AssertionError(f"outputs before token {token} depend on later tokens: {error}") from None
    x = x.detach().clone().requires_grad_()
    (gradient,) = torch.autograd.grad(_project(function(x)), x)
    assert gradient.any(), "no output depends on any input"


def perturb_parameters(module: Module, scale: float = 0.1, seed: int = 1) -> Module:
    """The module in float64 and evaluation mode, with noise on each parameter: initial zeros and ones hide errors."""
    generator = torch.Generator().manual_seed(seed)
    module = module.double().eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(scale * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype))
    return module


@contextmanager
def probe_embeddings(model: nn.Module, ids: Tensor) -> Iterator[list[Tensor]]:
    """Add zeros (B, T, C) to the embeddings of these (B, T) ids, to take gradients with respect to them. The model may
    look up special tokens before and after the ids."""
    probes: list[Tensor] = []
    length = ids.shape[1]

    def add_probe(table: nn.Module, args: tuple[Tensor, ...], vectors: Tensor) -> Tensor:
        looked_up = args[0]
        if looked_up.dim() != 2 or len(looked_up) != len(ids):
            return vectors
        for start in range(looked_up.shape[1] - length + 1):
            if torch.equal(looked_up[:, start : start + length], ids):
                probe = torch.zeros_like(vectors[:, start : start + length], requires_grad=True)
                probes.append(probe)
                return vectors + nn.functional.pad(probe, (0, 0, start, looked_up.shape[1] - length - start))
        return vectors

    tables = [module for module in model.modules() if isinstance(module, nn.Embedding | AdaptiveEmbedding)]
    handles = [table.register_forward_hook(add_probe) for table in tables]
    try:
        yield probes
    finally:
        for handle in handles:
            handle.remove()


def assert_causal_in_embeddings(
    model: nn.Module, forward: Callable[[], Tensor], ids: Tensor, tolerance: float = 0.0
) -> None:
    """The outputs (B, T, ...) of `forward()` have gradients of exactly zero with respect to the embeddings of later
    tokens, and not of all earlier ones. A model without parameters has no gradients and is not checked. `tolerance` is
    that of `assert_independent`."""
    if not any(True for _ in model.parameters()):
        return
    depends = False
    for token in range(1, ids.shape[1] + 1):
        with probe_embeddings(model, ids) as probes:
            outputs = forward()  # each time: reversible layers can be differentiated once
        assert probes, "the model looks up no vectors of these tokens"
        gradients = _gradients(outputs[:, :token], probes)
        slope = max(
            (gradient[:, token:].abs().amax().item() for gradient in gradients if token < ids.shape[1]), default=0.0
        )
        largest = max((gradient.abs().amax().item() for gradient in gradients), default=0.0)
        assert slope <= tolerance * largest, (
            f"an output before token {token} looks ahead: it has a gradient of {slope:.3g}"
        )
        depends = depends or any(bool(gradient[:, :token].any()) for gradient in gradients)
    assert depends, "no output depends on any token"


def assert_documents_apart(
    model: nn.Module, forward: Callable[[], Tensor], ids: Tensor, segment: Tensor, tolerance: float = 0.0
) -> None:
    """The outputs (B, T, ...) of `forward()` have gradients of exactly zero with respect to the embeddings of other
    documents in the row; `segment` (B, T) numbers the documents. `tolerance` is that of `assert_independent`."""
    for number in segment.unique().tolist():
        with probe_embeddings(model, ids) as probes:
            outputs = forward()
        assert probes, "the model looks up no vectors of these tokens"
        inside = segment == number
        gradients = _gradients(outputs[inside], probes)
        slope = max((gradient[~inside].abs().amax().item() for gradient in gradients), default=0.0)
        largest = max((gradient.abs().amax().item() for gradient in gradients), default=0.0)
        assert slope <= tolerance * largest, (
            f"document {number} has a gradient of {slope:.3g} with respect to others in its row"
        )


def _gradients(outputs: Tensor, inputs: list[Tensor]) -> list[Tensor]:
    gradients = torch.autograd.grad(_project(outputs), inputs, allow_unused=True)
    return [gradient for gradient in gradients if gradient is not None]


def rounding(dtype: torch.dtype) -> float:
    """How much of the largest value rounding may change, over a model of some layers."""
    return ROUNDING * torch.finfo(dtype).eps


def _project(outputs: Tensor) -> Tensor:
    """A random linear form of the outputs, so that no symmetry cancels its gradient."""
    directions = torch.randn(outputs.shape, dtype=outputs.dtype, generator=torch.Generator().manual_seed(0))
    return (outputs * directions).sum()
