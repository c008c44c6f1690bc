"""Sets of chains with alignments, the data of folding tasks; and generated ones (`[data]` with `kind = "chains"`), with
whole fold families held out. `structure_sets.py` has those that are read from files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from headwise.data.config import Content, DataConfig
from headwise.proteins.alignments import AlignedChain
from headwise.proteins.chains import ChainSettings, GeneratedChain, generate_chain


class Chains(ABC):
    """Chains by their numbers."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def __getitem__(self, index: int) -> AlignedChain: ...

    @abstractmethod
    def take(self, indices: Iterable[int]) -> Chains:
        """Some of the chains."""

    def __iter__(self) -> Iterator[AlignedChain]:
        return (self[index] for index in range(len(self)))


@dataclass(frozen=True)
class ChainSplit:
    """The parts of a data set, and the files that were read."""

    train: Chains
    valid: Chains
    test: Chains
    files: tuple[Path, ...] = ()


class ChainDataConfig(DataConfig):
    """`[data]` of folding tasks: chains with alignments, generated or read."""

    content: ClassVar[Content] = "chains"

    def load(self) -> ChainSplit:
        """The training, validation and test chains."""
        raise NotImplementedError


class ChainsConfig(ChainDataConfig):
    """Chains with known geometry and co-varying alignments, generated: `headwise.proteins.chains`. Validation and test
    chains are of other fold families than training chains."""

    kind: Literal["chains"] = "chains"
    name: str = "chains"
    families: int = Field(60, ge=1)  # fold families to train on
    members: int = Field(2, ge=1)  # alignments of each training family
    valid_families: int = Field(6, ge=1)
    test_families: int = Field(12, ge=1)
    min_length: int = Field(40, ge=12)  # residues
    max_length: int = Field(64, ge=12)
    rows: int = Field(64, ge=1)  # of an alignment, the query included
    coupling: float = Field(1.6, ge=0)  # strength of the co-variation at contacts
    gaps: float = Field(0.05, ge=0, lt=0.5)
    seed: int = Field(0, ge=0)  # of the folds and sequences

    @model_validator(mode="after")
    def _check_consistency(self) -> ChainsConfig:
        if self.name != "chains" or self.train or self.valid or self.test:
            raise ValueError(
                "chains are generated, not read; leave out `name`, `train`, `valid` and `test`, or read files with "
                'kind = "structures"'
            )
        if self.min_length > self.max_length:
            raise ValueError("`min_length` is larger than `max_length`; swap them")
        return self

    @property
    def settings(self) -> ChainSettings:
        names = {each.name for each in fields(ChainSettings)} & set(type(self).model_fields)
        return ChainSettings(**{name: getattr(self, name) for name in names})

    def load(self) -> ChainSplit:
        """Families are numbered in this order: test, validation, training, so that a larger training set leaves the
        held-out folds as they are."""
        test = range(self.test_families)
        valid = range(test.stop, test.stop + self.valid_families)
        train = range(valid.stop, valid.stop + self.families)
        pairs = tuple((family, member) for member in range(self.members) for family in train)
        held_out = (tuple((family, 0) for family in families) for families in (valid, test))
        first, second, third = (GeneratedChains(part, self.settings) for part in (pairs, *held_out))
        return ChainSplit(first, second, third)


@dataclass(frozen=True)
class GeneratedChains(Chains):
    """Chains that are generated when they are first asked for, and kept. Equal sets are generated equally."""

    numbers: tuple[tuple[int, int], ...]  # family and member of each
    settings: ChainSettings

    def __post_init__(self) -> None:
        object.__setattr__(self, "_kept", {})

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: int) -> GeneratedChain:
        kept: dict[int, GeneratedChain] = self.__dict__["_kept"]
        if index not in kept:
            family, member = self.numbers[index]
            kept[index] = generate_chain(family, member, self.settings)
        return kept[index]

    def take(self, indices: Iterable[int]) -> GeneratedChains:
        return GeneratedChains(tuple(self.numbers[index] for index in indices), self.settings)
