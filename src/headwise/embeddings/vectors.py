"""Word vectors as a value: nearest neighbours, analogies, and word2vec's text format, without torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from headwise.data.files import read_lines
from headwise.errors import UserError, nearest
from headwise.utils.files import write

Neighbours = list[tuple[str, float]]


@dataclass(frozen=True, eq=False)
class Vectors:
    """A vector for each of some words.

    >>> vectors = Vectors(("cat", "dog", "sky"), np.array([[1.0, 0.1], [1.0, 0.0], [0.0, 1.0]]))
    >>> vectors.nearest("cat", count=1)[0][0]
    'dog'
    """

    words: Sequence[str]
    table: np.ndarray  # (words, width)
    name: str = "the vectors"  # for error messages

    @cached_property
    def index(self) -> dict[str, int]:
        """The row of each word."""
        return {word: number for number, word in enumerate(self.words)}

    @cached_property
    def unit_vectors(self) -> np.ndarray:
        """The vectors normalised to length 1; zero vectors stay zero."""
        lengths = np.linalg.norm(self.table, axis=1, keepdims=True)
        return self.table / np.where(lengths > 0, lengths, 1)

    def nearest(self, word: str, *, count: int = 10) -> Neighbours:
        """The words with the largest cosine to this one."""
        return self._nearest_to(self._unit_vector(word), [word], count)

    def analogy(self, word: str, minus: str, plus: str, *, count: int = 10) -> Neighbours:
        """The words nearest to word - minus + plus, as in king - man + woman (3CosAdd, Mikolov et al. 2013)."""
        query = self._unit_vector(word) - self._unit_vector(minus) + self._unit_vector(plus)
        return self._nearest_to(query / max(float(np.linalg.norm(query)), 1e-12), [word, minus, plus], count)

    def _unit_vector(self, word: str) -> np.ndarray:
        if word not in self.index:
            raise UserError(f"{self.name}: there is no word '{word}'; {self._suggest(word)}")
        return self.unit_vectors[self.index[word]]

    def _suggest(self, word: str) -> str:
        close = nearest(word, self.words)
        return close if close.startswith("did") else f"it has {len(self.words):,} others"

    def _nearest_to(self, query: np.ndarray, excluded: Sequence[str], count: int) -> Neighbours:
        cosines = self.unit_vectors @ query
        order = np.argsort(-cosines, kind="stable")[: count + len(excluded)]
        neighbours = [(self.words[number], float(cosines[number])) for number in order]
        return [(word, cosine) for word, cosine in neighbours if word not in excluded][:count]

    def save(self, path: str | Path) -> Path:
        """Write word2vec's text format: `words width`, then a line for each word, its vector after it."""
        for word in self.words:
            if not word or word.split() != [word]:
                raise UserError(f"{path}: the format cannot hold {word!r}, which has white space; use larger units")
        lines = [f"{len(self.words)} {self.table.shape[1]}"]
        lines += [" ".join([word, *row]) for word, row in zip(self.words, self.table.astype(str), strict=True)]
        return write(Path(path), "\n".join(lines) + "\n")

    @classmethod
    def read(cls, path: str | Path) -> Vectors:
        """Read word2vec's text format, plain or .gz."""
        path = Path(path)
        lines = read_lines(path)
        head = next(lines, (0, ""))[1].split()
        if len(head) != 2 or not all(part.isdecimal() for part in head):
            raise UserError(f"{path}, line 1: is not `words width`, as word2vec's text files begin; add that line")
        count, width = map(int, head)
        words: dict[str, None] = {}
        table = []
        for number, line in lines:
            word, _, rest = line.strip().partition(" ")
            row = _parse_numbers(rest)
            if problem := _check_line(word, row, width, word in words):
                raise UserError(f"{path}, line {number}: {problem}; mend the line")
            words[word] = None
            table.append(row)
        if len(words) != count:
            raise UserError(f"{path}: has {len(words)} words instead of the {count} that line 1 names; copy it again")
        return cls(tuple(words), np.array(table, dtype=np.float32).reshape(-1, width), str(path))


def _parse_numbers(text: str) -> np.ndarray:
    """Parse the numbers of a line; anything that is not a number gives nan."""
    try:
        return np.array(text.split(), dtype=np.float32)
    except ValueError:
        return np.array([np.nan], dtype=np.float32)


def _check_line(word: str, row: np.ndarray, width: int, known: bool) -> str:
    """The error in a line; empty if there is none."""
    checks = {
        "is empty": not word,
        "has something that is not a finite number after the word": not np.isfinite(row).all(),
        f"{len(row)} numbers instead of {width}": len(row) != width,
        f"'{word}' is there twice": known,
    }
    return next((problem for problem, applies in checks.items() if applies), "")
