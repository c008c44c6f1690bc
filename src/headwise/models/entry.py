"""Entries of the catalogue: one architecture each, with its sizes and its checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headwise.config.base import merge
from headwise.models.config import ModelConfig


@dataclass(frozen=True)
class Check:
    """What our version was compared with, and where: a test, `file::function`, or a script that is run by hand."""

    oracle: str
    test: str
    package: str = ""  # that the oracle is imported from; empty where the test writes out equations


@dataclass(frozen=True)
class Entry:
    """One architecture: paper, sizes, and what our implementation is checked against."""

    name: str
    paper: str
    year: int
    family: str
    config: type[ModelConfig]
    sizes: Mapping[str, Mapping[str, Any]]  # settings that differ from the config's defaults
    vocab: int  # of the published model, for its parameter count
    vocabularies: Mapping[str, int] = field(default_factory=dict)  # of sizes that were published with another one
    outputs: int = 0  # size of its target vocabulary, or its labels; 0: vocab
    published: Mapping[str, str] = field(default_factory=dict)
    checks: tuple[Check, ...] = ()

    @property
    def oracle(self) -> str:
        """What our version is compared with, as text."""
        return "; ".join(check.oracle for check in self.checks)

    def get_vocab(self, size: str) -> int:
        """Vocabulary size of the published model of this size."""
        return self.vocabularies.get(size, self.vocab)

    def configure(self, size: str, settings: Mapping[str, Any] | None = None) -> Any:
        """The config of a size, with `settings` changed."""
        return self.config.model_validate(self.merge(size, settings or {}))

    def merge(self, size: str, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The settings of a size, without one those of the config's defaults, with `settings` changed."""
        return {**merge(self.sizes.get(size, {}), settings), **self.scale_hidden(size, settings)}

    def scale_hidden(self, size: str, settings: Mapping[str, Any]) -> dict[str, int]:
        """`hidden` in proportion to the width, if `settings` change the width alone; else empty.

        >>> from headwise.models.llama import ENTRY
        >>> ENTRY.scale_hidden("7b", {"width": 64}), ENTRY.scale_hidden("7b", {"width": 64, "hidden": 256})
        ({'hidden': 172}, {})
        """
        fields = self.config.model_fields
        if "width" not in settings or "hidden" in settings or not {"width", "hidden"} <= fields.keys():
            return {}
        width, hidden = (self.sizes.get(size, {}).get(key, fields[key].default) for key in ("width", "hidden"))
        new = settings["width"]
        if not (isinstance(new, int) and new > 0 and hidden) or new == width:
            return {}  # a wrong width is refused by the config; without `hidden`, the config derives it
        return {"hidden": max(round(hidden * new / width), 1)}
