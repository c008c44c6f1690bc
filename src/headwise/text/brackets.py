"""Dependency trees as bracketed sequences, so that parsing is sequence-to-sequence (Vinyals et al. 2015, who write
constituents).

A token stands for each word, in the order of the sentence: the word's relation to its head. A word with dependents is
in brackets with them and marked by a star:

    The dog barks .   ->   ( ( det nsubj* ) root* punct )

Every tree can be written and read back. Where arcs cross, words of a bracket are not neighbours: a token then says how
far its word is from the one that would be next, as in `obl@+2`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

OPEN, CLOSE, HEAD = "(", ")", "*"
MISSING = -1  # the head of a word that an output does not have
_TOKEN = re.compile(r"(?P<label>[^()*@\s]+)(?P<head>\*?)(?:@(?P<offset>[+-]\d{1,6}))?")


@dataclass(frozen=True)
class Tree:
    """The head of each word, counted from 1 and 0 for the root, and its relation. `well_formed`: it was read from
    balanced brackets with each word once and one root; otherwise words may be `MISSING`."""

    heads: tuple[int, ...]
    labels: tuple[str, ...]
    well_formed: bool = True


def write_brackets(heads: Sequence[int], labels: Sequence[str]) -> str:
    """Write a tree with one root; ValueError if the heads are none.

    >>> write_brackets([2, 3, 0, 3], ["det", "nsubj", "root", "punct"])
    '( ( det nsubj* ) root* punct )'
    >>> write_brackets([3, 0, 2, 2], ["det", "root", "obj", "punct"])  # the first word belongs to the third
    '( root*@+1 ( det@-2 obj*@+1 ) punct )'
    """
    dependents: list[list[int]] = [[] for _ in range(len(heads) + 1)]
    for word, head in enumerate(heads, 1):
        if not 0 <= head <= len(heads):
            raise ValueError(f"word {word} has the head {head}, which there is not")
        dependents[head].append(word)
    if len(dependents[0]) != 1:
        raise ValueError(f"{len(dependents[0])} words have no head; a tree has one root")
    tokens, written, expected = list[str](), 0, 1
    todo: list[str | int] = [
        dependents[0][0]
    ]  # brackets as they are, a positive word with its dependents, or alone: -w
    while todo:
        item = todo.pop()
        if isinstance(item, str):
            tokens.append(item)
        elif item > 0 and dependents[item]:
            before = [word for word in dependents[item] if word < item]
            after = [word for word in dependents[item] if word > item]
            todo += reversed([OPEN, *before, -item, *after, CLOSE])
        else:
            tokens.append(_write_word(abs(item), expected, labels[abs(item) - 1], starred=item < 0))
            written, expected = written + 1, abs(item) + 1
    if written != len(heads):
        raise ValueError("heads go round in a circle")
    return " ".join(tokens)


def _write_word(word: int, expected: int, label: str, starred: bool) -> str:
    token = label + HEAD * starred + (f"@{word - expected:+d}" if word != expected else "")
    match = _TOKEN.fullmatch(token)
    if not match or match["label"] != label:
        raise ValueError(f"the relation '{label}' has brackets, stars, @ or spaces")
    return token


@dataclass
class _Bracket:
    """An open bracket: the word that it belongs to, 0 as long as there is none, and the words that depend on it."""

    head: int = 0
    dependents: list[int] = field(default_factory=list)


class _Reader:
    """Reads tokens one by one; `errors` counts those that do not fit."""

    def __init__(self, length: int):
        self.heads, self.labels = [MISSING] * length, [""] * length
        self.open = [_Bracket()]  # the first is around everything, and has no word
        self.errors, self.expected = 0, 1

    def read(self, token: str) -> None:
        match = _TOKEN.fullmatch(token)
        if token == OPEN:
            self.open.append(_Bracket())
        elif token == CLOSE and len(self.open) > 1:
            self.errors += self.close()
        elif match:
            self.add_word(match["label"], bool(match["head"]), int(match["offset"] or 0))
        else:
            self.errors += 1

    def add_word(self, label: str, starred: bool, offset: int) -> None:
        word, last = self.expected + offset, self.open[-1]
        self.expected = word + 1
        if not 1 <= word <= len(self.heads) or self.labels[word - 1]:
            self.errors += 1
            return
        self.labels[word - 1] = label
        if starred and not last.head and len(self.open) > 1:
            last.head = word
        else:
            last.dependents.append(word)
            self.errors += starred

    def close(self) -> bool:
        """Close the last bracket. Returns whether it lacks a word of its own: what it holds then belongs to the bracket
        around it."""
        closed = self.open.pop()
        for word in closed.dependents if closed.head else ():
            self.heads[word - 1] = closed.head
        self.open[-1].dependents += [closed.head] if closed.head else closed.dependents
        return not closed.head

    def finish(self) -> Tree:
        while len(self.open) > 1:
            self.close()
            self.errors += 1
        for word in self.open[0].dependents:
            self.heads[word - 1] = 0
        complete = not self.errors and MISSING not in self.heads and self.heads.count(0) == 1
        return Tree(tuple(self.heads), tuple(self.labels), complete)


def read_brackets(text: str, length: int) -> Tree:
    """Read the tree of a sentence of `length` words. What is not well formed is read as far as possible.

    >>> read_brackets("( ( det nsubj* ) root* punct )", 4).heads
    (2, 3, 0, 3)
    >>> read_brackets("( ( det nsubj* ) root*", 4)
    Tree(heads=(2, 3, 0, -1), labels=('det', 'nsubj', 'root', ''), well_formed=False)
    """
    reader = _Reader(length)
    for token in text.split():
        reader.read(token)
    return reader.finish()


def count_words(text: str) -> int:
    """The words of a bracketed sequence.

    >>> count_words("( ( det nsubj* ) root* punct )")
    4
    """
    return sum(token not in (OPEN, CLOSE) for token in text.split())
