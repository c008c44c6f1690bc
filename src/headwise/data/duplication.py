"""The duplication task 0w0w (Kitaev et al. 2020, section 5): say again what was said, symbol by symbol."""

from __future__ import annotations

from random import Random

from pydantic import Field, model_validator

from headwise.data.generated import SampledCorpus
from headwise.data.texts import Pair


class Duplication(SampledCorpus):
    """w -> w, with w drawn from `symbols` symbols. A language model that reads both as one text (`task.prefix_lm`) has
    `length` tokens before it and learns the second w alone.

    DISCREPANCY: the paper writes 0 before each w. Here the special tokens between source and target do that: w EOS BOS
    w.
    """

    length: int = Field(256, ge=8)  # in all, special tokens included
    symbols: int = Field(127, ge=2)

    @model_validator(mode="after")
    def _enough(self) -> Duplication:
        if self.symbols**self.half < 10 * (self.train + self.valid + self.test):
            raise ValueError(
                f"there are too few different texts of {self.half} from {self.symbols} symbols; "
                "raise length or symbols, or lower train"
            )
        return self

    @property
    def half(self) -> int:
        """Symbols of one w."""
        return (self.length - 2) // 2

    def draw(self, chance: Random) -> Pair:
        word = " ".join(str(1 + int(self.symbols * chance.random())) for _ in range(self.half))
        return word, word
