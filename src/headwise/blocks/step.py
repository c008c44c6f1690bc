"""Step forms: a decoding step of a module, for the newest token of each row, as a plain function.

In a decoding step of a small model, module calls, streams and contexts cost more than the arithmetic. So a module may
have a step form beside its `forward`: `stepper` returns a function that is bound to the module's weights and to its
path in the KV cache. It reads and writes the same cache entries as `forward`, so the two may take turns. Step forms
are for evaluation mode; they call neither forward hooks nor recorders. A module without one runs as it is.

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
Stepper = TypeVar("Stepper", bound=Callable[..., Any])


def calls(*names: str) -> Callable[[Stepper], Stepper]:
    """Mark a `stepper` that calls these methods, so that it stays valid for subclasses that override them. One that
    calls `forward` is valid for every subclass."""

    def mark(stepper: Stepper) -> Stepper:
        vars(stepper)["calls"] = frozenset(names)
        return stepper

    return mark


class StepForm:
    """A module with a step form, `stepper`. A subclass that overrides a method which the step form replaces, and has no
    step form of its own, gets that of the nearest base class that is still valid for it."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        owners = (base for base in cls.__mro__ if "stepper" in vars(base))
        valid: Any = next((base for base in owners if not is_changed(cls, base)), None)
        if valid is not None and valid is not cls:
            setattr(cls, "stepper", valid.stepper)  # noqa: B010  (mypy knows no assignment to methods)


def is_changed(cls: type, owner: Any) -> bool:
    """Whether a subclass overrides a method of `owner` that the step form of `owner` does not call."""
    called = vars(owner.stepper).get("calls", frozenset())
    if "forward" in called:
        return False
    changed = {
        name
        for base in set(cls.__mro__) - set(owner.__mro__)
        for name, value in vars(base).items()
        if callable(value) or hasattr(value, "__get__")
    }
    return any(hasattr(owner, name) for name in changed - called - DECLARATIONS if not name.startswith("__"))


DECLARATIONS = {"stepper", "properties", "input_linear", "extra_repr"}  # no output depends on these


class FunctionStep(StepForm):
    """A function of tensors, such as a norm: `stepper()` is the same without the module call."""

    @calls("forward")
    def stepper(self) -> Function:
        assert isinstance(self, nn.Module)
        return self


class PositionStep(StepForm):
    """Position embeddings: `stepper()(x, scale, length, pos)` is x * scale, (R, C), plus the vector of each row's next
    position: `length` for all rows, or `pos` (R, 1), at most `length`."""

    @calls("forward")
    def stepper(self) -> Function:
        assert isinstance(self, nn.Module)

        def step(x: Tensor, scale: float, length: int, pos: Tensor | None) -> Tensor:
            start = length if pos is None else -1
            pos = torch.arange(length, length + 1, device=x.device) if pos is None else pos
            return self((x * scale).unsqueeze(1), pos, start).squeeze(1)  # (R, C) -> (R, 1, C) and back

        return step


class EmbeddingStep(StepForm):
    """A token embedding: `stepper()(tokens, length, gaps)` embeds a token (R,) of each row after `length` others, of
    which `gaps` (R, 1) were padding: a stream of (R, 1, C)."""

    @calls("forward")
    def stepper(self) -> EmbedTokens:
        assert isinstance(self, nn.Module)

        def step(tokens: Tensor, length: int, gaps: Tensor | None) -> Stream:
            ids = tokens.unsqueeze(1)  # (R,) -> (R, 1)
            return self(ids, start=length) if gaps is None else self(ids, pos=length - gaps)

        return step


def inline(module: nn.Module) -> Function:
    """A module as a function of (R, C) without the module call; a module that has no shorter form is returned
    itself."""
    if isinstance(module, FunctionStep):
        return module.stepper()
    shorten = TORCH_MODULES.get(type(module))  # by exact type: a subclass may do something else
    return shorten(module) if shorten else module


def identity(x: Tensor) -> Tensor:
    return x


def inline_linear(module: nn.Linear) -> Function:
    weight, bias = module.weight.t(), module.bias  # (in, out): torch would transpose it in every call
    return (lambda x: torch.mm(x, weight)) if bias is None else (lambda x: torch.addmm(bias, x, weight))


def inline_embedding(module: nn.Embedding) -> Function:
    weight = module.weight
    return module if module.max_norm is not None else lambda ids: F.embedding(ids, weight)


TORCH_MODULES: dict[type, Callable[[Any], Function]] = {
    nn.Linear: inline_linear,
    nn.Embedding: inline_embedding,
    nn.Identity: lambda module: identity,
}
