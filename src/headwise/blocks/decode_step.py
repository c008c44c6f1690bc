"""Decode steps: the forward pass of one new token per row, for incremental decoding, as a plain function.

In incremental decoding with a small model, module calls, streams and contexts cost more than the arithmetic. So a
module may have a decode step beside its `forward`: `build_decode_step` returns a function that is bound to the module's
weights and to its path in the KV cache. It reads and writes the same cache entries as `forward`, so that the two can
alternate. Decode steps are for evaluation mode; they call neither forward hooks nor recorders. A module without one
runs its `forward` on a sequence of length 1.

Letters: R rows, C width.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

if TYPE_CHECKING:
    from headwise.blocks.stream import Stream

Step = Callable[[Tensor, "Stream"], Tensor]  # (R, C), and the stream of the new tokens with their positions -> (R, C)
Function = Callable[..., Tensor]
EmbedTokens = Callable[[Tensor, int, Tensor | None], "Stream"]
BuildStep = TypeVar("BuildStep", bound=Callable[..., Any])


def calls(*names: str) -> Callable[[BuildStep], BuildStep]:
    """Mark a `build_decode_step` whose decode step calls these methods, so that it stays valid for subclasses that
    override them. One that calls `forward` is valid for every subclass."""

    def mark(build_step: BuildStep) -> BuildStep:
        vars(build_step)["calls"] = frozenset(names)
        return build_step

    return mark


class HasDecodeStep:
    """A module with a decode step, which `build_decode_step` returns. A subclass that overrides a method which the
    decode step replaces, and has no decode step of its own, gets that of the nearest base class that is still valid
    for it."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        owners = (base for base in cls.__mro__ if "build_decode_step" in vars(base))
        valid: Any = next((base for base in owners if not is_changed(cls, base)), None)
        if valid is not None and valid is not cls:
            setattr(cls, "build_decode_step", valid.build_decode_step)  # noqa: B010  (mypy knows no assignment to methods)


def is_changed(cls: type, owner: Any) -> bool:
    """Whether a subclass overrides a method of `owner` that the decode step of `owner` does not call."""
    called = vars(owner.build_decode_step).get("calls", frozenset())
    if "forward" in called:
        return False
    changed = {
        name
        for base in set(cls.__mro__) - set(owner.__mro__)
        for name, value in vars(base).items()
        if callable(value) or hasattr(value, "__get__")
    }
    return any(hasattr(owner, name) for name in changed - called - DECLARATIONS if not name.startswith("__"))


DECLARATIONS = {"build_decode_step", "properties", "input_linear", "extra_repr"}  # no output depends on these


class FunctionStep(HasDecodeStep):
    """A function of tensors, such as a norm: the decode step is the same function without the module call."""

    @calls("forward")
    def build_decode_step(self) -> Function:
        assert isinstance(self, nn.Module)
        return self


class PositionStep(HasDecodeStep):
    """Position embeddings: the decode step `step(x, scale, length, pos)` is x * scale, (R, C), plus the vector of each
    row's next position: `length` for all rows, or `pos` (R, 1), at most `length`."""

    @calls("forward")
    def build_decode_step(self) -> Function:
        assert isinstance(self, nn.Module)

        def step(x: Tensor, scale: float, length: int, pos: Tensor | None) -> Tensor:
            start = length if pos is None else -1
            pos = torch.arange(length, length + 1, device=x.device) if pos is None else pos
            return self((x * scale).unsqueeze(1), pos, start).squeeze(1)  # (R, C) -> (R, 1, C) and back

        return step


class EmbeddingStep(HasDecodeStep):
    """A token embedding: the decode step `step(tokens, length, padding_lengths)` embeds a token (R,) of each row after
    `length` others, of which `padding_lengths` (R, 1) were padding: a stream of (R, 1, C)."""

    @calls("forward")
    def build_decode_step(self) -> EmbedTokens:
        assert isinstance(self, nn.Module)

        def step(tokens: Tensor, length: int, padding_lengths: Tensor | None) -> Stream:
            ids = tokens.unsqueeze(1)  # (R,) -> (R, 1)
            return self(ids, start=length) if padding_lengths is None else self(ids, pos=length - padding_lengths)

        return step


def to_function(module: nn.Module) -> Function:
    """A module as a plain function of (R, C), without the overhead of a module call; a module for which there is none
    is returned itself."""
    if isinstance(module, FunctionStep):
        return module.build_decode_step()
    convert = TORCH_MODULES.get(type(module))  # by exact type: a subclass may do something else
    return convert(module) if convert else module


def identity(x: Tensor) -> Tensor:
    return x


def linear_to_function(module: nn.Linear) -> Function:
    weight, bias = module.weight.t(), module.bias  # (in, out): torch would transpose it in every call
    return (lambda x: torch.mm(x, weight)) if bias is None else (lambda x: torch.addmm(bias, x, weight))


def embedding_to_function(module: nn.Embedding) -> Function:
    weight = module.weight
    return module if module.max_norm is not None else lambda ids: F.embedding(ids, weight)


TORCH_MODULES: dict[type, Callable[[Any], Function]] = {
    nn.Linear: linear_to_function,
    nn.Embedding: embedding_to_function,
    nn.Identity: lambda module: identity,
}
