"""Sets of generated chains (`[data]` with `kind = "chains"`), with whole fold families held out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Literal

from pydantic import Field, model_validator

from headwise.data.config import DataConfig
from headwise.proteins.chains import ChainSettings, GeneratedChain, generate_chain


class ChainsConfig(DataConfig):
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
            raise ValueError("chains are generated, not read; leave out `name`, `train`, `valid` and `test`")
        if self.min_length > self.max_length:
            raise ValueError("`min_length` is larger than `max_length`; swap them")
        return self

    @property
    def settings(self) -> ChainSettings:
        names = {each.name for each in fields(ChainSettings)} & set(type(self).model_fields)
        return ChainSettings(**{name: getattr(self, name) for name in names})


@dataclass(frozen=True)
class Chains:
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

    def __iter__(self) -> Iterator[GeneratedChain]:
        return (self[index] for index in range(len(self)))

    def take(self, indices: Iterable[int]) -> Chains:
        """Some of the chains."""
        return Chains(tuple(self.numbers[index] for index in indices), self.settings)


def load_chains(config: ChainsConfig) -> tuple[Chains, Chains, Chains]:
    """The training, validation and test chains. Families are numbered in this order: test, validation, training, so
    that a larger training set leaves the held-out folds as they are."""
    test = range(config.test_families)
    valid = range(config.test_families, config.test_families + config.valid_families)
    train = range(valid.stop, valid.stop + config.families)
    pairs = [(family, member) for member in range(config.members) for family in train]
    held_out = ([(family, 0) for family in families] for families in (valid, test))
    return (Chains(tuple(pairs), config.settings), *(Chains(tuple(part), config.settings) for part in held_out))  # type: ignore[return-value]
