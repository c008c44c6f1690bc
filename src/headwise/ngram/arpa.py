"""Back-off models as ARPA files, which SRILM, KenLM and most speech recognisers read.

A line is log10 p, the words and the log10 back-off weight; -99 stands for log 0. Words may not contain white space:
ours (and backslashes) are written \\uXXXX.
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
from headwise.utils.files import read_bytes, write

LOG_ZERO = -99.0
LN10 = math.log(10)
ESCAPED = re.compile(r"\\u([0-9a-f]{4})")


def to_arpa(model: Backoff, path: str | Path, vocabulary: Sequence[str]) -> Path:
    """Write a model; `vocabulary` names its tokens by id, as a tokeniser's does. PAD never occurs and is left out."""
    if len(vocabulary) != model.vocab:
        raise UserError(f"cannot write {path}: the model has {model.vocab} tokens, the vocabulary {len(vocabulary)}")
    tables = model.by_order
    words = [escape(word) for word in vocabulary]
    header, sections = ["\\data\\"], []
    contexts = [""]
    for order, table in enumerate(tables, start=1):
        keys = table.keys[:-1].tolist()
        grams = [f"{contexts[key // model.vocab]} {words[key % model.vocab]}".lstrip() for key in keys]
        log_p = to_log10(table.log_p)
        backoffs = to_log10(tables[order].log_backoff) if order < len(tables) else [0.0] * len(keys)
        lines = [
            f"{p:.7f}\t{gram}\t{backoff:.7f}" if backoff else f"{p:.7f}\t{gram}"
            for p, gram, backoff in zip(log_p, grams, backoffs, strict=True)
        ]
        if order == 1:
            del lines[PAD]
        header.append(f"ngram {order}={len(lines)}")
        sections += ["", f"\\{order}-grams:", *lines]
        contexts = grams
    return write(Path(path), "\n".join([*header, *sections, "", "\\end\\", ""]))


def to_log10(values: torch.Tensor) -> list[float]:
    """Natural to decimal logarithms, without the last entry, which belongs to no n-gram."""
    return (values[:-1].double() / LN10).clamp(min=LOG_ZERO).tolist()


def escape(word: str) -> str:
    r"""
    >>> escape("\n"), unescape("\\u000a") == "\n"
    ('\\u000a', True)
    """
    return "".join(f"\\u{ord(letter):04x}" if letter.isspace() or letter == "\\" else letter for letter in word)


def unescape(word: str) -> str:
    return ESCAPED.sub(lambda match: chr(int(match[1], 16)), word)


def from_arpa(path: str | Path) -> tuple[Backoff, list[str]]:
    """The model of a file and its vocabulary: our four special tokens, then the file's other words."""
    lines = Lines(Path(path))
    sizes = read_header(lines)
    ids = {word: number for number, word in enumerate(SPECIALS)}
    numbers, log_backoff = {"": 0}, [0.0]  # of the contexts, by their words
    tables: list[NgramTable] = []
    for order, size in enumerate(sizes, start=1):
        grams = read_section(lines, order, size)
        if order == 1:
            for gram in grams:
                ids.setdefault(gram.words, len(ids))
            present = {gram.words for gram in grams}
            grams += [Gram(special, -math.inf, 0.0, lines.number) for special in SPECIALS if special not in present]
        keys = np.array([gram_key(gram, numbers, ids, lines) for gram in grams], np.int64)
        ranks = np.argsort(keys, kind="stable")
        grams, keys = [grams[index] for index in ranks], keys[ranks]
        if len(duplicates := np.flatnonzero(keys[1:] == keys[:-1])):
            duplicate = grams[duplicates[0] + 1]
            raise lines.error(f"'{duplicate.words}' occurs for the second time; keep one of them", duplicate.line)
        tensors = (torch.from_numpy(keys), torch.tensor([gram.log_p for gram in grams]), torch.tensor(log_backoff))
        tables.append(NgramTable(*tensors, vocab=len(ids), persistent=True))
        numbers = {gram.words: number for number, gram in enumerate(grams)}
        log_backoff = [gram.log_backoff for gram in grams]
    if lines.next() != "\\end\\":
        raise lines.error("expected \\end\\ after the last n-gram; the file is cut short or its counts are wrong")
    return Backoff(tables, len(ids)), [unescape(word) for word in ids]


@dataclass(frozen=True)
class Gram:
    words: str  # with single spaces
    log_p: float
    log_backoff: float
    line: int


COUNT = re.compile(r"ngram\s+(\d{1,9})\s*=\s*(\d{1,18})")
MAX_BYTES = 2**32  # of a file


class Lines:
    """The non-blank lines of a file, and errors with line numbers."""

    def __init__(self, path: Path):
        self.path, self.number = path, 0
        try:
            self.remaining = iter(read_bytes(path, MAX_BYTES).decode().split("\n"))
        except OSError as error:
            raise UserError(f"cannot read {path}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise UserError(f"{path}: not UTF-8 text; convert it first") from None

    def next(self) -> str:
        for self.number, line in enumerate(self.remaining, start=self.number + 1):  # noqa: B020
            if line := line.strip(" \t\r"):
                return line
        return ""

    def error(self, text: str, number: int = 0) -> UserError:
        return UserError(f"{self.path}, line {number or self.number}: {text}")


def read_header(lines: Lines) -> list[int]:
    """The number of n-grams of each order. Text before \\data\\ is a comment; stops after the title of the 1-grams."""
    while (line := lines.next()) != "\\data\\":
        if not line:
            raise lines.error("found no \\data\\; this is not an ARPA file")
    sizes: list[int] = []
    while match := re.fullmatch(COUNT, line := lines.next()):
        if int(match[1]) != len(sizes) + 1:
            raise lines.error(f"expected the number of {len(sizes) + 1}-grams, not '{line}'")
        sizes.append(int(match[2]))
    if not sizes or line != "\\1-grams:":
        raise lines.error(f"expected 'ngram 1=...' and so on, then \\1-grams:, not '{line}'")
    return sizes


def read_section(lines: Lines, order: int, size: int) -> list[Gram]:
    """The n-grams of one order."""
    if order > 1 and (line := lines.next()) != f"\\{order}-grams:":
        raise lines.error(
            f"expected \\{order}-grams: after the {order - 1}-grams that \\data\\ announces, not '{line}'"
        )
    return [read_gram(lines, order) for _ in range(size)]


def read_gram(lines: Lines, order: int) -> Gram:
    line = lines.next()
    first, *words = re.split("[ \t]+", line)
    backoff = words.pop() if len(words) == order + 1 else "0"
    try:
        log_p, log_backoff = float(first), float(backoff)
    except ValueError:
        log_p = math.nan
    if len(words) != order or not log_p <= 0 or not math.isfinite(log_backoff):
        raise lines.error(f"expected log10 p, {order} words and perhaps a back-off weight, not '{line}'")
    words = [word.lower() if word.lower() in SPECIALS else word for word in words]
    return Gram(" ".join(words), to_natural_log(log_p), to_natural_log(log_backoff), lines.number)


def to_natural_log(log10: float) -> float:
    return log10 * LN10 if log10 > LOG_ZERO else -math.inf


def gram_key(gram: Gram, numbers: dict[str, int], ids: dict[str, int], lines: Lines) -> int:
    context, _, last = gram.words.rpartition(" ")
    if last not in ids:
        raise lines.error(f"'{last}' is not among the 1-grams; add it there", gram.line)
    if context not in numbers:
        raise lines.error(f"'{gram.words}' needs '{context}' one order down; add it there", gram.line)
    return numbers[context] * len(ids) + ids[last]
