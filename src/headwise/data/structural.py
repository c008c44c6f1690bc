"""Structural objectives of StructBERT (Wang et al. 2020) beside masked language modelling.

Word structural objective: some trigrams of unmasked tokens are shuffled, and the tokens of the original order are
predicted at their positions. Sentence structural objective: the second text of a pair follows the first, precedes it,
or is from another document, with a third of the pairs each.

DISCREPANCY: the paper shuffles "5 % of trigrams" and does not say which trigrams a text has; here they are disjoint, so
that 5 % of the tokens are in a shuffled one, on average.

Letters: B rows, T positions.
"""

from __future__ import annotations

import numpy as np

from headwise.data.masking import MaskedBlocks
from headwise.text import EOS, PAD

FOLLOWS, RANDOM, PRECEDES = range(3)  # labels of pairs; the first two are BERT's
TRIGRAM = 3


class StructuralBlocks(MaskedBlocks):
    """Masked texts or pairs with shuffled trigrams, and pairs in either order."""

    shuffle_rate: float = 0.0  # share of the tokens that are in shuffled trigrams
    both_directions: bool = False  # of pairs: three labels instead of two

    def add_noise(self, ids: np.ndarray, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        masked, labels = super().add_noise(ids, random)
        return shuffle_trigrams(masked, labels, self.mask, self.shuffle_rate, random)

    def build_pairs(self, starts: np.ndarray, random: np.random.Generator) -> tuple[list[np.ndarray], np.ndarray]:
        """`A EOS B EOS` from each block, and whether B follows A, precedes it, or is a random text."""
        if not self.both_directions:
            return super().build_pairs(starts, random)
        texts, sizes = self.read_texts(starts, self.context), self._measure_blocks(starts)
        cuts = random.integers(1, np.maximum(sizes, 2))
        labels = np.where(cuts == sizes, RANDOM, random.integers(0, 3, len(starts)))  # a single token has no neighbour
        others = self.sample_other_texts(starts, np.maximum(sizes - cuts, 1), random)
        rows = []
        for text, cut, other, label in zip(texts, cuts, others, labels, strict=True):
            first, second = text[:cut], other if label == RANDOM else text[cut:]
            pair = (second, first) if label == PRECEDES else (first, second)
            rows.append(np.concatenate([pair[0], [EOS], pair[1], [EOS]]))
        return rows, labels


def shuffle_trigrams(
    ids: np.ndarray, labels: np.ndarray, mask: int, share: float, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """The word structural objective: shuffle disjoint trigrams of tokens without labels, share * n / 3 of n tokens on
    average; the labels of their positions are the original tokens. (B, T) each."""
    ids, labels = ids.copy(), labels.copy()
    free = (ids > EOS) & (ids != mask) & (labels == PAD)
    wanted = np.floor(share * ((ids > EOS).sum(1)) / TRIGRAM + random.random(len(ids))).astype(int)
    for row, count in enumerate(wanted):
        starts = np.flatnonzero(free[row, :-2] & free[row, 1:-1] & free[row, 2:])
        for start in random.permutation(starts):
            place = slice(start, start + TRIGRAM)
            if not count:
                break
            if not free[row, place].all():  # it overlaps one that is shuffled already
                continue
            labels[row, place] = ids[row, place]
            ids[row, place] = random.permutation(ids[row, place])
            free[row, place] = False
            count -= 1
    return ids, labels
