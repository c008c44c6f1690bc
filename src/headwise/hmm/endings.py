"""Tag probabilities of unknown words from their suffix and shape (Brants 2000, "TnT", section 2.3).

The keys of a word go from the empty key over its shape to ever longer suffixes with that shape. The tag distribution of
each key is smoothed by that of the key before:

    p(t | key) = (c(key, t) + s * p(t | shorter key)) / (c(key) + s),    s = PRIOR_STRENGTH

DISCREPANCY: TnT weighs with the deviation of p(t) and knows two shapes, with and without a capital; counts as weights
and a few more shapes tag better.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headwise.data.splits import fingerprint

MAX_RARE_COUNT = 10  # more frequent words are not like unknown ones
PRIOR_STRENGTH = 3.0  # weight of the shorter key, in words


def suffix_keys(word: str, longest: int) -> list[str]:
    """The keys of a word, the most specific last.

    >>> suffix_keys("Re-read", 2)
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


def hash_key(key: str) -> int:
    """Hash a key to a signed 64-bit integer."""
    return fingerprint(key) - 2**63


def fit_suffixes(words: Sequence[str], tags: np.ndarray, longest: int, max_keys: int) -> tuple[np.ndarray, np.ndarray]:
    """The hashes of at most `max_keys` keys in ascending order, and p(tag | key).

    `tags` (words, K) counts the tags of each word. Each word has weight 1, however often it occurs.
    """
    rows: dict[str, int] = {}
    levels: list[list[tuple[int, int]]] = [[] for _ in range(longest + 2)]  # of the chain: (key, shorter key)
    pairs: list[tuple[int, int]] = []  # (key, word)
    for number, word in enumerate(words):
        shorter = 0
        for level, key in zip(levels, suffix_keys(word, longest), strict=False):
            if key not in rows:
                rows[key] = len(rows)
                level.append((rows[key], shorter))
            shorter = rows[key]
            pairs.append((shorter, number))
    keys, numbers = np.array(pairs).reshape(-1, 2).T
    counts = np.zeros((len(rows), tags.shape[1]))
    np.add.at(counts, keys, (tags / tags.sum(1, keepdims=True))[numbers])
    sizes = counts.sum(1, keepdims=True)
    shares = counts / sizes  # the first key, shared by all words, has no shorter one
    for level in levels[1:]:
        level_keys, shorter_keys = np.array(level, dtype=int).reshape(-1, 2).T
        shares[level_keys] = (counts[level_keys] + PRIOR_STRENGTH * shares[shorter_keys]) / (
            sizes[level_keys] + PRIOR_STRENGTH
        )
    ids = np.array([hash_key(key) for key in rows], np.int64)
    frequent = np.argsort(-sizes[:, 0], kind="stable")[:max_keys]
    kept = frequent[np.argsort(ids[frequent])]
    return ids[kept], shares[kept]
