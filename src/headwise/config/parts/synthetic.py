"""Synthesizer's scores, which compare no tokens, and mixtures of scores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from headwise.config.parts.scores import ScaledConfig, ScoreConfig
from headwise.config.parts.site import SCORES, AnyScore

if TYPE_CHECKING:
    from headwise.blocks.attention.scores import Score


@SCORES.add
class DenseConfig(ScoreConfig):
    """W relu(q), one row for each place of a key; `factorised`: the products of two such of sqrt(limit) rows."""

    kind: Literal["dense"] = "dense"
    max_length: int = Field(512, ge=1)
    factorised: bool = False

    def build(self, width_q: int, width_k: int, heads: int) -> Score:
        from headwise.blocks.attention.synthesizer import Dense, FactorisedDense

        return (FactorisedDense if self.factorised else Dense)(width_q, heads, self.max_length)


@SCORES.add
class RandomConfig(ScoreConfig):
    """A number for each place of a query and of a key, learned or left as it was drawn."""

    kind: Literal["random"] = "random"
    max_length: int = Field(512, ge=1)
    learned: bool = True

    def build(self, width_q: int, width_k: int, heads: int) -> Score:
        from headwise.blocks.attention.synthesizer import Random

        return Random(heads, self.max_length, self.learned)


@SCORES.add
class FactorisedConfig(ScoreConfig):
    """The same in two factors of `rank` columns."""

    kind: Literal["factorised"] = "factorised"
    max_length: int = Field(512, ge=1)
    rank: int = Field(16, ge=1)
    learned: bool = True

    def build(self, width_q: int, width_k: int, heads: int) -> Score:
        from headwise.blocks.attention.synthesizer import Factorised

        return Factorised(heads, self.max_length, self.rank, self.learned)


@SCORES.add
class MixtureConfig(ScoreConfig):
    """The sum of several scores; `gated`: with shares that are learned."""

    kind: Literal["mixture"] = "mixture"
    scores: tuple[AnyScore, ...] = Field((ScaledConfig(), RandomConfig()), min_length=1)
    gated: bool = False

    def build(self, width_q: int, width_k: int, heads: int) -> Score:
        from headwise.blocks.attention.synthesizer import Gated, Mixture

        return (Gated if self.gated else Mixture)([score.build(width_q, width_k, heads) for score in self.scores])
