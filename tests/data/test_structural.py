"""The structural objectives of StructBERT: shuffled trigrams, and pairs with three labels."""

from collections import Counter

import numpy as np
import pytest

from headwise.data.examples import Examples
from headwise.data.masking import mask_tokens
from headwise.data.structural import FOLLOWS, PRECEDES, RANDOM, StructuralBlocks, shuffle_trigrams
from headwise.text import EOS, PAD

MASK = 10_000


def draw(rows, length, seed=0):
    """Rows of different tokens, which end with EOS."""
    ids = np.stack([np.append(np.random.default_rng(seed + row).permutation(np.arange(4, 4 + length)), EOS)
                    for row in range(rows)])  # fmt: skip
    return ids, np.random.default_rng(seed)


@pytest.mark.parametrize("share", [0.05, 0.2])
def test_trigrams_of_unmasked_tokens_are_shuffled_and_their_order_is_to_be_predicted(share):
    ids, random = draw(rows=400, length=60)
    masked, mask_labels = mask_tokens(ids, MASK, 0.15, random)
    shuffled, labels = shuffle_trigrams(masked, mask_labels, MASK, share, random)
    new = (labels != PAD) & (mask_labels == PAD)
    assert (labels[labels != PAD] == ids[labels != PAD]).all()  # labels are the original tokens
    assert (shuffled[~new] == masked[~new]).all()  # nothing else is changed, neither masks nor EOS
    assert (np.sort(shuffled, 1) == np.sort(masked, 1)).all()
    orders = Counter()
    for row in range(len(ids)):
        places = np.flatnonzero(new[row])
        assert len(places) % 3 == 0
        where = {token: place for place, token in enumerate(ids[row])}
        for start in range(0, len(places), 3):
            # runs of places are made of trigrams, but two may touch: a token comes from its own trigram
            moves = [where[shuffled[row, place]] - place for place in places[start : start + 3]]
            assert max(map(abs, moves)) <= 2 and sum(moves) == 0
            orders[tuple(moves)] += 1
    count = sum(orders.values())
    assert count * 3 / (400 * 60) == pytest.approx(share, rel=0.06)  # expected: share of the tokens
    assert len(orders) == 6  # all orders of three, equally often
    assert all(abs(n / count - 1 / 6) < 5 * (5 / 36 / count) ** 0.5 for n in orders.values())


def test_without_a_share_nothing_is_shuffled_and_short_texts_have_no_trigram():
    ids, random = draw(rows=3, length=40)
    masked, labels = mask_tokens(ids, MASK, 0.15, random)
    assert all((a == b).all() for a, b in zip(shuffle_trigrams(masked, labels, MASK, 0.0, random),
                                              (masked, labels), strict=True))  # fmt: skip
    short = np.array([[5, 6, EOS, PAD]])
    assert (shuffle_trigrams(short, np.full_like(short, PAD), MASK, 0.99, random)[0] == short).all()


def make_blocks(**settings):
    """Documents of consecutive numbers: what follows and what precedes is seen from the tokens."""
    documents = [([], list(range(1000 * number + 10, 1000 * number + 40))) for number in range(1, 9)]
    blocks = StructuralBlocks(Examples.from_rows(documents), 33, MASK, 0.15, True, 1, 0, 8)
    for name, value in settings.items():
        setattr(blocks, name, value)
    return blocks


def test_a_pair_is_next_random_or_previous_with_a_third_each():
    blocks = make_blocks(both_directions=True)
    counts = Counter()
    for number in range(300):
        random = np.random.default_rng(number)
        rows, labels = blocks.build_pairs(blocks.bounds[:-1], random)
        for row, label in zip(rows, labels, strict=True):
            first, second, end = np.split(row, np.flatnonzero(row == EOS))
            second = second[1:]
            assert end.tolist() == [EOS]
            if label == FOLLOWS:
                assert second[0] == first[-1] + 1
            elif label == PRECEDES:
                assert first[0] == second[-1] + 1
            else:
                assert label == RANDOM and first[0] // 1000 != second[0] // 1000
            counts[int(label)] += 1
    total = sum(counts.values())
    assert all(abs(counts[label] / total - 1 / 3) < 5 * (2 / 9 / total) ** 0.5 for label in range(3))


def test_a_batch_has_both_objectives():
    blocks = make_blocks(both_directions=True, shuffle_rate=0.3)
    batch = blocks.batch(np.concatenate(blocks.plan(0)))
    assert set(batch.next_sentence_labels.tolist()) == {0, 1, 2}
    moved = (batch.labels != PAD) & (batch.ids != MASK)
    assert moved.sum() > 0.2 * (batch.ids > EOS).sum()
