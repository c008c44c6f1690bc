"""The CMU pronouncing dictionary: `WORD  P1 P2 ...`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from headwise.data.files import read_lines
from headwise.data.readers.base import ReadOptions, Record

_STRESS = re.compile(r"\d")
_VARIANT = re.compile(r"\(\d+\)$")


def read_cmudict(path: Path, options: ReadOptions) -> Iterator[Record]:
    """Read words in lower case and their phonemes without stress.

    Variants, `WORD(2)`, are further pronunciations of the same word; those that differ in stress alone are read once.
    """
    seen = set()
    for number, line in read_lines(path):
        if line.startswith(";;;"):
            continue
        word, _, phonemes = line.partition(" # ")[0].strip().partition(" ")
        word = _VARIANT.sub("", word).lower()
        pair = word, " ".join(_STRESS.sub("", phonemes).split())
        if pair not in seen:
            seen.add(pair)
            yield Record(number, *pair)
