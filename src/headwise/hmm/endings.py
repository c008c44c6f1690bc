"""What the end and the shape of a word say about its tag (Brants 2000, "TnT", section 2.3).

The chain of keys of a word goes from anything, over its shape, to ever longer endings of words of that shape. Each
key's tags are smoothed by those of the key before:

    p(t | key) = (c(key, t) + STRENGTH * p(t | shorter key)) / (c(key) + STRENGTH)

DISCREPANCY: TnT weighs with the deviation of p(t) and knows two shapes, with and without a capital; counts as weights
and a few more shapes tag better.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headwise.data.corpora import fingerprint

RARE = 10  # words seen more often are too well known to be like unknown ones
STRENGTH = 3.0  # a shorter key counts as much as this many words


def chain(word: str, longest: int) -> list[str]:
    """The keys of a word, the most special last.

    >>> chain("Re-read", 2)
    ['', 'Xx-|', 'Xx-|d', 'Xx-|ad']
    """
    shape = "".join(
        mark
        for mark, has in (
            ("X", word[:1].isupper()),
            ("x", any(map(str.islower, word))),
            ("0", any(map(str.isdigit, word))),
            ("-", "-" in word),
        )
        if has
    )
    letters = word.lower()
    return ["", *(f"{shape}|{letters[len(letters) - n :]}" for n in range(min(longest, len(letters)) + 1))]


def identify(key: str) -> int:
    """A key as 64 bits with a sign, as a tensor can hold."""
    return fingerprint(key) - 2**63


def learn(words: Sequence[str], tags: np.ndarray, longest: int, room: int) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of at most `room` keys in ascending order, and p(tag | key).

    `tags` (words, K) counts the tags of each word. A word is one word, however often it was seen.
    """
    rows: dict[str, int] = {}
    levels: list[list[tuple[int, int]]] = [[] for _ in range(longest + 2)]  # of the chain: (key, shorter key)
    places: list[tuple[int, int]] = []  # (key, word)
    for number, word in enumerate(words):
        shorter = 0
        for level, key in zip(levels, chain(word, longest), strict=False):
            if key not in rows:
                rows[key] = len(rows)
                level.append((rows[key], shorter))
            shorter = rows[key]
            places.append((shorter, number))
    keys, numbers = np.array(places).reshape(-1, 2).T
    counts = np.zeros((len(rows), tags.shape[1]))
    np.add.at(counts, keys, (tags / tags.sum(1, keepdims=True))[numbers])
    sizes = counts.sum(1, keepdims=True)
    shares = counts / sizes  # the first key, of all words, has none before it
    for level in levels[1:]:
        own, before = np.array(level, dtype=int).reshape(-1, 2).T
        shares[own] = (counts[own] + STRENGTH * shares[before]) / (sizes[own] + STRENGTH)
    ids = np.array([identify(key) for key in rows], np.int64)
    often = np.argsort(-sizes[:, 0], kind="stable")[:room]
    kept = often[np.argsort(ids[often])]
    return ids[kept], shares[kept]
