"""Alignment scores: how a query and a key are compared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from headwise.config.base import Config
from headwise.config.parts.site import SCORES
from headwise.errors import UserError

if TYPE_CHECKING:
    from headwise.blocks.attention.scores import Score


class ScoreConfig(Config):
    """How a query and a key are compared: `build(width_q, width_k, heads) -> Score`, the widths those of one head."""

    kind: str

    def build(self, width_q: int, width_k: int, heads: int) -> Score:
        raise TypeError(f"{type(self).__name__} has no build method")

    def width(self, width_q: int, width_k: int) -> int:
        """The one width of both sides."""
        if width_q != width_k:
            raise UserError(
                f"score: '{self.kind}' needs queries and keys of one width, not {width_q} and {width_k}; use 'general'"
            )
        return width_q


@SCORES.add
class ScaledConfig(ScoreConfig):
    """q k / sqrt(D)"""

    kind: Literal["scaled"] = "scaled"

    def build(self, width_q: int, width_k: int, heads: int) -> Score:
        from headwise.blocks.attention.scores import Scaled

        return Scaled(self.width(width_q, width_k))


@SCORES.add
class DotConfig(ScoreConfig):
    """q k"""

    kind: Literal["dot"] = "dot"

    def build(self, width_q: int, width_k: int, heads: int) -> Score:
        from headwise.blocks.attention.scores import Dot

        self.width(width_q, width_k)
        return Dot()


@SCORES.add
class GeneralConfig(ScoreConfig):
    """q W k"""

    kind: Literal["general"] = "general"

    def build(self, width_q: int, width_k: int, heads: int) -> Score:
        from headwise.blocks.attention.scores import General

        return General(width_q, width_k, heads)


@SCORES.add
class AdditiveConfig(ScoreConfig):
    """v tanh(W q + U k), each head with `hidden` channels; 0: as many as a query has."""

    kind: Literal["additive"] = "additive"
    hidden: int = Field(0, ge=0)

    def build(self, width_q: int, width_k: int, heads: int) -> Score:
        from headwise.blocks.attention.scores import Additive

        return Additive(width_q, width_k, heads, self.hidden or width_q)


@SCORES.add
class CosineConfig(ScoreConfig):
    """beta cos(q, k)"""

    kind: Literal["cosine"] = "cosine"
    beta: float = Field(1.0, gt=0)
    learned: bool = True

    def build(self, width_q: int, width_k: int, heads: int) -> Score:
        from headwise.blocks.attention.scores import Cosine

        self.width(width_q, width_k)
        return Cosine(heads, self.beta, self.learned)


@SCORES.add
class BoundedCosineConfig(ScoreConfig):
    """cos(q, k) times a learned factor of each head, at most `most`."""

    kind: Literal["bounded_cosine"] = "bounded_cosine"
    initial: float = Field(10.0, gt=0)
    most: float = Field(100.0, gt=0)

    def build(self, width_q: int, width_k: int, heads: int) -> Score:
        from headwise.blocks.attention.scores import BoundedCosine

        self.width(width_q, width_k)
        return BoundedCosine(heads, self.initial, self.most)


@SCORES.add
class LocationConfig(ScoreConfig):
    """W q, one row for each place of a key; no key is looked at."""

    kind: Literal["location"] = "location"
    max_length: int = Field(256, ge=1)

    def build(self, width_q: int, width_k: int, heads: int) -> Score:
        from headwise.blocks.attention.scores import Location

        return Location(width_q, heads, self.max_length)
