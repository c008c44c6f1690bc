"""The duplication task 0w0w (Kitaev et al. 2020, section 5): copy a random sequence of symbols."""

from __future__ import annotations

from random import Random

from pydantic import Field, model_validator

from headwise.data.generated import SampledCorpus
from headwise.data.texts import Pair


class Duplication(SampledCorpus):
    """w -> w, with w drawn from `symbols` symbols. For a prefix language model (`task.prefix_lm`) both are one text of
    `length` tokens, with a loss on the second w only.

    DISCREPANCY: the paper writes 0 before each w. Here the special tokens between source and target serve for it: w EOS
    BOS w.
    """

    length: int = Field(256, ge=8)  # of both together, special tokens included
    symbols: int = Field(127, ge=2)

    @model_validator(mode="after")
    def _check_distinct(self) -> Duplication:
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

    def draw_pair(self, generator: Random) -> Pair:
        word = " ".join(str(1 + int(self.symbols * generator.random())) for _ in range(self.half))
        return word, word
