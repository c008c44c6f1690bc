"""Summary of a model: its tree of modules, parameters, FLOPs and memory, as `headwise show` prints it.

Those of the catalogue's sizes are counted once (`models/cost.py`) and stored in `summaries.json`, one line each, by
`python -m headwise.models.index`; reading them imports no torch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field
from functools import cache
from importlib import resources
from math import prod
from typing import Any

FILE = "summaries.json"  # in the package
TRAINING_PASSES = 3  # FLOPs of training on a token in forward passes: a backward pass costs about two
Image = tuple[int, int, int] | tuple[()]  # channels, rows, columns


@dataclass(frozen=True)
class Cost:
    """Bytes and floating-point operations for one length of source and target."""

    parameters: int
    length: int
    flops_per_token: int  # forward, for one token, or for one source and one target token
    training_bytes: int  # weights, gradients and two Adam moments
    activation_bytes: int  # kept for the backward pass, for each pair of `length` tokens
    decoding_bytes: int  # weights
    cache_bytes_per_token: int  # keys and values of one more target token


@dataclass
class Node:
    """One module of the tree: what it is, its own tensors, all parameters below it."""

    name: str
    kind: str
    parameters: int
    tensors: dict[str, tuple[int, ...]] = field(default_factory=dict)
    children: list[Node] = field(default_factory=list)
    repeats: int = 1

    @property
    def tied_parameters(self) -> int:
        """Parameters that the tree shows more than once and `parameters` does not: tied tables, layers that share."""
        return self._sum_tensors() - self.repeats * self.parameters

    def _sum_tensors(self) -> int:
        tensors = sum(prod(shape) for shape in self.tensors.values())
        return self.repeats * (tensors + sum(child._sum_tensors() for child in self.children))

    def to_json(self) -> dict[str, Any]:
        shown: dict[str, Any] = {"name": self.name, "kind": self.kind, "parameters": self.parameters}
        if self.repeats > 1:
            shown["repeats"] = self.repeats
        if self.tensors:
            shown["tensors"] = {name: list(shape) for name, shape in self.tensors.items()}
        if self.children:
            shown["children"] = [child.to_json() for child in self.children]
        return shown

    def to_row(self) -> list[Any]:
        """The same without keys, to be stored."""
        children = [child.to_row() for child in self.children]
        return [self.name, self.kind, self.parameters, self.tensors, children, self.repeats]

    @classmethod
    def from_row(cls, row: Sequence[Any]) -> Node:
        name, kind, parameters, tensors, children, repeats = row
        shapes = {key: tuple(shape) for key, shape in tensors.items()}
        return cls(name, kind, parameters, shapes, [cls.from_row(child) for child in children], repeats)


@dataclass(frozen=True)
class Summary:
    """What is known of one model without its weights."""

    name: str
    cost: Cost | None  # None: it has no parameters; its tables grow with the text
    tree: Node
    image: Image = ()  # that it reads; empty: texts
    settings: Mapping[str, Any] = field(default_factory=dict)  # of a model without parameters

    def to_row(self) -> list[Any]:
        """What is stored: values without keys."""
        cost = None if self.cost is None else list(astuple(self.cost))
        return [self.name, cost, list(self.image), self.settings, self.tree.to_row()]

    @classmethod
    def from_row(cls, row: Sequence[Any]) -> Summary:
        name, cost, image, settings, tree = row
        return cls(name, None if cost is None else Cost(*cost), Node.from_row(tree), tuple(image), settings)


@cache
def read_lines() -> dict[str, str]:
    """The stored summaries by name, each as a line of JSON."""
    lines = resources.files("headwise").joinpath(FILE).read_text("utf-8").splitlines()
    return {line.split('"', 2)[1]: line for line in lines}


def read_summary(name: str) -> Summary:
    """The stored summary of one size of the catalogue, `name-size`."""
    return Summary.from_row(json.loads(read_lines()[name]))


def dump_summary(summary: Summary) -> str:
    """One line of the stored file."""
    return json.dumps(summary.to_row(), separators=(",", ":"))
