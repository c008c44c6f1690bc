"""A graph: a function of tensors that `torch.export` traces, with dynamic sizes."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from headwise.blocks.stream import Part
from headwise.errors import UserError

Tensors = Mapping[str, Tensor]


@dataclass(frozen=True)
class Graph:
    """A module that takes tensors and returns a tuple of them. Sizes that differ between the first two
    examples are dynamic; further examples are for comparisons."""

    name: str  # of its file
    module: nn.Module
    examples: tuple[Tensors, ...]
    outputs: tuple[str, ...]

    def run(self, inputs: Tensors) -> dict[str, Tensor]:
        """The outputs by name."""
        with torch.no_grad():
            return dict(zip(self.outputs, self.module(*inputs.values()), strict=True))

    def trace(self, target: str) -> ExportedProgram:
        """The exported program; `target` is named in errors."""
        first, second = self.examples[:2]
        dynamic = tuple(
            {
                dim: Dim.DYNAMIC
                for dim, sizes in enumerate(zip(value.shape, second[name].shape, strict=True))
                if sizes[0] != sizes[1]
            }
            for name, value in first.items()
        )
        parts = PartWatcher(self.module)
        with torch.no_grad(), be_quiet(), parts.watch():
            try:
                # *args of a module are one argument, a tuple
                return torch.export.export(self.module, tuple(first.values()), dynamic_shapes=(dynamic,), strict=False)
            except UserError:
                raise
            except Exception as error:
                raise UserError(f"--to {target}: {parts.explain(error)}") from error


class PartWatcher:
    """Finds the part at which tracing fails, or fixes a size that should be dynamic."""

    def __init__(self, module: nn.Module):
        self.module = module
        self.running: list[str] = []
        self.failed = ""  # the innermost part that raised
        self.fixed = ""  # the first part after which a size of its input is a constant

    @contextmanager
    def watch(self) -> Iterator[None]:
        parts = [module for module in self.module.modules() if isinstance(module, Part)]
        handles = [part.register_forward_pre_hook(self._enter) for part in parts]
        handles += [part.register_forward_hook(self._leave) for part in parts]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _enter(self, part: nn.Module, inputs: Any) -> None:
        self.running.append(type(part).__name__)

    def _leave(self, part: nn.Module, inputs: Any, output: Any) -> None:
        x = getattr(inputs[0], "x", inputs[0])
        if not self.fixed and any(
            isinstance(size, torch.SymInt) and size.node.maybe_as_int() is not None for size in x.shape
        ):
            self.fixed = type(part).__name__
        self.running.pop()

    def explain(self, error: Exception) -> str:
        """Which part cannot be exported, and why, in one sentence."""
        text = " ".join(str(error).split())
        if "Constraints violated" in text or "specialized" in text:
            part = self.fixed or (self.running[-1] if self.running else "")
            why = "its computation depends on the number of rows or tokens, and a graph has one for all of them"
        elif "data-dependent" in text.lower():
            part = self.running[-1] if self.running else ""
            why = "the sizes of its tensors depend on their values"
        else:
            part = self.running[-1] if self.running else ""
            why = f"torch.export cannot trace it ({type(error).__name__}: {text[:160]})"
        return f"{part or 'this model'} cannot be exported, as {why}; choose another model, or use the run as it is"


@contextmanager
def be_quiet() -> Iterator[None]:
    """Silence the exporter's warnings, logs and prints: what fails is reported as an error."""
    disabled = logging.root.manager.disable
    with warnings.catch_warnings(), redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        warnings.simplefilter("ignore")
        logging.disable(logging.CRITICAL)
        try:
            yield
        finally:
            logging.disable(disabled)
