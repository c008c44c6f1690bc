"""What the catalogue says of one architecture."""

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
    package: str = ""  # that the oracle is imported from; none where it is equations, written out in the test


@dataclass(frozen=True)
class Entry:
    """One architecture: where it comes from, its sizes, and who can vouch for our version of it."""

    name: str
    paper: str
    year: int
    family: str
    config: type[ModelConfig]
    sizes: Mapping[str, Mapping[str, Any]]  # settings that differ from the config's defaults
    vocab: int  # of the published model, for its parameter count
    vocabularies: Mapping[str, int] = field(default_factory=dict)  # of sizes that were published with another one
    outputs: int = 0  # its target words, where they are others
    published: Mapping[str, str] = field(default_factory=dict)
    checks: tuple[Check, ...] = ()

    @property
    def oracle(self) -> str:
        """What our version was compared with, in words."""
        return "; ".join(check.oracle for check in self.checks)

    def words(self, size: str) -> int:
        """The vocabulary that a size was published with."""
        return self.vocabularies.get(size, self.vocab)

    def configure(self, size: str, settings: Mapping[str, Any] | None = None) -> Any:
        """The config of a size, with some settings changed."""
        return self.config.model_validate(merge(self.sizes[size], settings or {}))
