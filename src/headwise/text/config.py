"""Tokeniser configs (`[tokeniser]`). No torch here.

>>> TOKENISERS.parse({"kind": "characters", "target": {"kind": "words"}}).target.kind
'words'
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from pydantic import Field, model_validator

from headwise.config.base import Config, Table, slot

TOKENISERS = Table("tokeniser", default="characters", place="tokeniser")
TARGETS = Table("target tokeniser", default="same")


@TARGETS.add
class SameTokeniser(Config):
    """The target side is tokenised like the source side."""

    kind: Literal["same"] = "same"


class TokeniserConfig(Config):
    """The tokeniser of the source side, and of the target side unless `target` is set.

    Each side has its own vocabulary; with `shared` there is one for both.
    """

    kind: str
    shared: bool = False
    pairs: bool = False  # a source may be two texts with a tab between them; the classification task sets it
    target: slot(TARGETS) = SameTokeniser()  # type: ignore[valid-type]

    @model_validator(mode="after")
    def _check_consistency(self) -> TokeniserConfig:
        if self.shared and self.target.kind != "same":
            raise ValueError("a shared vocabulary needs the same kind on both sides; leave out `target`")
        if isinstance(self.target, TokeniserConfig) and (self.target.shared or self.target.target.kind != "same"):
            raise ValueError("`target` is one side: it has no `shared` and no `target` of its own")
        return self

    @property
    def target_side(self) -> TokeniserConfig:
        """The config of the target side."""
        return self.target if isinstance(self.target, TokeniserConfig) else self


if TYPE_CHECKING:  # to a type checker, the config of what a slot holds
    AnyTokeniser: TypeAlias = TokeniserConfig
else:
    AnyTokeniser = slot(TOKENISERS)


@TARGETS.add
@TOKENISERS.add
class CharactersConfig(TokeniserConfig):
    """One token a character seen `min_count` times; the most frequent, `size` tokens in all (0: no limit)."""

    kind: Literal["characters"] = "characters"
    size: int = Field(0, ge=0)
    min_count: int = Field(1, ge=1)


@TARGETS.add
@TOKENISERS.add
class WordsConfig(TokeniserConfig):
    """One token a word between spaces, otherwise as characters."""

    kind: Literal["words"] = "words"
    size: int = Field(32_000, ge=0)
    min_count: int = Field(1, ge=1)
    classes: bool = False  # unknown words become classes by capitals, digits and suffix instead of one UNK


@TOKENISERS.add
class ParsedConfig(WordsConfig):
    """Words with their heads in a dependency tree, `dogs|2 bark|0`, as the format conllu-trees has them."""

    kind: Literal["parsed"] = "parsed"  # type: ignore[assignment]


@TARGETS.add
class LabelsConfig(TokeniserConfig):
    """One token a text: the targets are labels. The classification task sets it."""

    kind: Literal["labels"] = "labels"
    size: int = Field(0, ge=0)
    min_count: int = Field(1, ge=1)


@TARGETS.add
@TOKENISERS.add
class BytesConfig(TokeniserConfig):
    """One token a UTF-8 byte: 260 of them for any language."""

    kind: Literal["bytes"] = "bytes"


@TOKENISERS.add
class PixelLevelsConfig(TokeniserConfig):
    """One token a pixel and channel, quantised to `levels`: of the task pixels."""

    kind: Literal["levels"] = "levels"
    levels: int = Field(16, ge=2, le=256)


@TARGETS.add
@TOKENISERS.add
class BpeConfig(TokeniserConfig):
    """Byte-level byte-pair encoding (Sennrich et al. 2016; Radford et al. 2019), `size` tokens in all."""

    kind: Literal["bpe"] = "bpe"
    size: int = Field(8000, ge=260)
    min_count: int = Field(2, ge=1)


@TARGETS.add
@TOKENISERS.add
class UnigramConfig(TokeniserConfig):
    """A byte-level unigram language model of subwords (Kudo 2018), `size` tokens in all."""

    kind: Literal["unigram"] = "unigram"
    size: int = Field(8000, ge=260)
