"""Back-off models as ARPA files, which SRILM, KenLM and most speech recognisers read.

A line is log10 p, the words and log10 of what the gram leaves for shorter contexts; -99 stands for log 0. Words may
hold no white space there: ours (and backslashes) are written \\uXXXX.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from headwise.errors import UserError
from headwise.ngram.backoff import Backoff, NgramTable
from headwise.text import PAD, SPECIALS
from headwise.utils.files import write

NOTHING = -99.0
LN10 = math.log(10)
ESCAPED = re.compile(r"\\u([0-9a-f]{4})")


def to_arpa(model: Backoff, path: str | Path, vocabulary: Sequence[str]) -> Path:
    """Write a model; `vocabulary` names its tokens by id, as a tokeniser's does. PAD never occurs and is left out."""
    if len(vocabulary) != model.vocab:
        raise UserError(f"cannot write {path}: the model has {model.vocab} tokens, the vocabulary {len(vocabulary)}")
    tables = model.by_order
    words = [escaped(word) for word in vocabulary]
    heads, sections = ["\\data\\"], []
    contexts = [""]
    for order, table in enumerate(tables, start=1):
        keys = table.keys[:-1].tolist()
        grams = [f"{contexts[key // model.vocab]} {words[key % model.vocab]}".lstrip() for key in keys]
        log_p = logarithms(table.log_p)
        rests = logarithms(tables[order].log_rest) if order < len(tables) else [0.0] * len(keys)
        lines = [
            f"{p:.7f}\t{gram}\t{rest:.7f}" if rest else f"{p:.7f}\t{gram}"
            for p, gram, rest in zip(log_p, grams, rests, strict=True)
        ]
        if order == 1:
            del lines[PAD]
        heads.append(f"ngram {order}={len(lines)}")
        sections += ["", f"\\{order}-grams:", *lines]
        contexts = grams
    return write(Path(path), "\n".join([*heads, *sections, "", "\\end\\", ""]))


def logarithms(values: torch.Tensor) -> list[float]:
    """Natural to decimal, without the last entry, which belongs to no gram."""
    return (values[:-1].double() / LN10).clamp(min=NOTHING).tolist()


def escaped(word: str) -> str:
    r"""
    >>> escaped("\n"), unescaped("\\u000a") == "\n"
    ('\\u000a', True)
    """
    return "".join(f"\\u{ord(letter):04x}" if letter.isspace() or letter == "\\" else letter for letter in word)


def unescaped(word: str) -> str:
    return ESCAPED.sub(lambda found: chr(int(found[1], 16)), word)


def from_arpa(path: str | Path) -> tuple[Backoff, list[str]]:
    """The model of a file and its vocabulary: our four marks, then the file's other words."""
    lines = Lines(Path(path))
    sizes = header(lines)
    ids = {word: number for number, word in enumerate(SPECIALS)}
    numbers, log_rest = {"": 0}, [0.0]  # of the contexts, by their words
    tables: list[NgramTable] = []
    for order, size in enumerate(sizes, start=1):
        grams = section(lines, order, size)
        if order == 1:
            for gram in grams:
                ids.setdefault(gram.words, len(ids))
            named = {gram.words for gram in grams}
            grams += [Gram(mark, -math.inf, 0.0, lines.number) for mark in SPECIALS if mark not in named]
        keys = np.array([key(gram, numbers, ids, lines) for gram in grams], np.int64)
        places = np.argsort(keys, kind="stable")
        grams, keys = [grams[place] for place in places], keys[places]
        if len(twice := np.flatnonzero(keys[1:] == keys[:-1])):
            again = grams[twice[0] + 1]
            raise lines.wrong(f"'{again.words}' stands here for the second time; keep one of them", again.line)
        given = (torch.from_numpy(keys), torch.tensor([gram.log_p for gram in grams]), torch.tensor(log_rest))
        tables.append(NgramTable(*given, vocab=len(ids), persistent=True))
        numbers = {gram.words: number for number, gram in enumerate(grams)}
        log_rest = [gram.log_rest for gram in grams]
    if lines.next() != "\\end\\":
        raise lines.wrong("expected \\end\\ after the last n-gram; the file is cut short or its counts are wrong")
    return Backoff(tables, len(ids)), [unescaped(word) for word in ids]


@dataclass(frozen=True)
class Gram:
    words: str  # with single spaces
    log_p: float
    log_rest: float
    line: int


class Lines:
    """The lines of a file that are not blank, and what to say of a bad one."""

    def __init__(self, path: Path):
        self.path, self.number = path, 0
        try:
            self.left = iter(path.read_text(encoding="utf-8").split("\n"))
        except OSError as error:
            raise UserError(f"cannot read {path}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise UserError(f"{path}: not UTF-8 text; convert it first") from None

    def next(self) -> str:
        for self.number, line in enumerate(self.left, start=self.number + 1):  # noqa: B020
            if line := line.strip(" \t\r"):
                return line
        return ""

    def wrong(self, text: str, number: int = 0) -> UserError:
        return UserError(f"{self.path}, line {number or self.number}: {text}")


def header(lines: Lines) -> list[int]:
    """How many grams each order has. What stands before \\data\\ is a comment; ends after the title of the 1-grams."""
    while (line := lines.next()) != "\\data\\":
        if not line:
            raise lines.wrong("found no \\data\\; this is not an ARPA file")
    sizes: list[int] = []
    while found := re.fullmatch(r"ngram\s+(\d+)\s*=\s*(\d+)", line := lines.next()):
        if int(found[1]) != len(sizes) + 1:
            raise lines.wrong(f"expected the number of {len(sizes) + 1}-grams, not '{line}'")
        sizes.append(int(found[2]))
    if not sizes or line != "\\1-grams:":
        raise lines.wrong(f"expected 'ngram 1=...' and so on, then \\1-grams:, not '{line}'")
    return sizes


def section(lines: Lines, order: int, size: int) -> list[Gram]:
    """The grams of one order."""
    if order > 1 and (line := lines.next()) != f"\\{order}-grams:":
        raise lines.wrong(
            f"expected \\{order}-grams: after the {order - 1}-grams that \\data\\ announces, not '{line}'"
        )
    return [read(lines, order) for _ in range(size)]


def read(lines: Lines, order: int) -> Gram:
    line = lines.next()
    first, *words = re.split("[ \t]+", line)
    rest = words.pop() if len(words) == order + 1 else "0"
    try:
        log_p, log_rest = float(first), float(rest)
    except ValueError:
        log_p = math.nan
    if len(words) != order or not log_p <= 0 or not math.isfinite(log_rest):
        raise lines.wrong(f"expected log10 p, {order} words and perhaps a back-off weight, not '{line}'")
    words = [word.lower() if word.lower() in SPECIALS else word for word in words]
    return Gram(" ".join(words), natural(log_p), natural(log_rest), lines.number)


def natural(log10: float) -> float:
    return log10 * LN10 if log10 > NOTHING else -math.inf


def key(gram: Gram, numbers: dict[str, int], ids: dict[str, int], lines: Lines) -> int:
    context, _, last = gram.words.rpartition(" ")
    if last not in ids:
        raise lines.wrong(f"'{last}' is not among the 1-grams; add it there", gram.line)
    if context not in numbers:
        raise lines.wrong(f"'{gram.words}' needs '{context}' one order down; add it there", gram.line)
    return numbers[context] * len(ids) + ids[last]
