"""Words with their vectors, as a value: neighbours, analogies, and word2vec's text format. No torch here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from headwise.data.read import read_lines
from headwise.errors import UserError, nearest
from headwise.utils.files import write

Found = list[tuple[str, float]]


@dataclass(frozen=True, eq=False)
class Vectors:
    """A vector for each of some words.

    >>> vectors = Vectors(("cat", "dog", "sky"), np.array([[1.0, 0.1], [1.0, 0.0], [0.0, 1.0]]))
    >>> vectors.nearest("cat", count=1)[0][0]
    'dog'
    """

    words: Sequence[str]
    table: np.ndarray  # (words, width)
    name: str = "the vectors"  # for complaints

    @cached_property
    def numbers(self) -> dict[str, int]:
        """Where each word stands."""
        return {word: number for number, word in enumerate(self.words)}

    @cached_property
    def directions(self) -> np.ndarray:
        """The vectors at length 1; one of length 0 stays there."""
        lengths = np.linalg.norm(self.table, axis=1, keepdims=True)
        return self.table / np.where(lengths > 0, lengths, 1)

    def nearest(self, word: str, *, count: int = 10) -> Found:
        """The words with the largest cosine to this one."""
        return self._around(self._direction(word), [word], count)

    def analogy(self, word: str, minus: str, plus: str, *, count: int = 10) -> Found:
        """What is to `plus` as `word` is to `minus`: king - man + woman (3CosAdd, Mikolov et al. 2013)."""
        aim = self._direction(word) - self._direction(minus) + self._direction(plus)
        return self._around(aim / max(float(np.linalg.norm(aim)), 1e-12), [word, minus, plus], count)

    def _direction(self, word: str) -> np.ndarray:
        if word not in self.numbers:
            raise UserError(f"{self.name}: there is no word '{word}'; {self._like(word)}")
        return self.directions[self.numbers[word]]

    def _like(self, word: str) -> str:
        close = nearest(word, self.words)
        return close if close.startswith("did") else f"it has {len(self.words):,} others"

    def _around(self, aim: np.ndarray, without: Sequence[str], count: int) -> Found:
        cosines = self.directions @ aim
        order = np.argsort(-cosines, kind="stable")[: count + len(without)]
        found = [(self.words[number], float(cosines[number])) for number in order]
        return [(word, cosine) for word, cosine in found if word not in without][:count]

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
            row = _numbers(rest)
            if problem := _problem(word, row, width, word in words):
                raise UserError(f"{path}, line {number}: {problem}; mend the line")
            words[word] = None
            table.append(row)
        if len(words) != count:
            raise UserError(f"{path}: has {len(words)} words instead of the {count} that line 1 names; copy it again")
        return cls(tuple(words), np.array(table, dtype=np.float32).reshape(-1, width), str(path))


def _numbers(text: str) -> np.ndarray:
    """The numbers of a line; infinite or missing ones, and what is none, make it nan."""
    try:
        return np.array(text.split(), dtype=np.float32)
    except ValueError:
        return np.array([np.nan], dtype=np.float32)


def _problem(word: str, row: np.ndarray, width: int, known: bool) -> str:
    """What is wrong with a line; empty if nothing is."""
    checks = {
        "is empty": not word,
        "has something that is no number after the word": not np.isfinite(row).all(),
        f"{len(row)} numbers instead of {width}": len(row) != width,
        f"'{word}' is there twice": known,
    }
    return next((problem for problem, found in checks.items() if found), "")
