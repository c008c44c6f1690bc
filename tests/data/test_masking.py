"""Masked language modelling: which tokens are masked, by what they are replaced, and pairs of texts."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from headwise.data.examples import Examples
from headwise.data.masking import MaskedBlocks, mask_tokens
from headwise.text import BOS, EOS, PAD, UNK

MASK = 1000


def examples(*lengths):
    """Documents whose tokens are all different."""
    tokens = iter(range(UNK + 1, MASK))
    return Examples.from_rows([([], [next(tokens) for _ in range(length)]) for length in lengths])


def within(count, total, share, sigmas=4.5):
    """Whether a binomial count is within `sigmas` of its mean; by chance it is not once in 150,000."""
    return abs(count - share * total) < sigmas * (total * share * (1 - share)) ** 0.5


def rows(batch):
    """The texts before masking, without padding."""
    original = torch.where(batch.labels != PAD, batch.labels, batch.ids)
    return [row[row != PAD].tolist() for row in original]


@pytest.fixture(scope="module")
def masked_batch():
    """Random tokens between special ones, their masked ids and labels."""
    random = np.random.default_rng(1)
    ids = random.integers(UNK, MASK, (500, 203))
    ids[:, 0], ids[:, 100], ids[:, 200], ids[:, 201:] = BOS, EOS, EOS, PAD
    return ids, *mask_tokens(ids, MASK, 0.15, random)


def test_fifteen_percent_of_tokens_are_masked_and_no_special_ones(masked_batch):
    ids, masked, labels = masked_batch
    predicted = labels != PAD
    assert (predicted.sum(1) == round(0.15 * 198)).all()
    assert (ids[predicted] > EOS).all() and (masked[ids <= EOS] == ids[ids <= EOS]).all()
    assert (labels[predicted] == ids[predicted]).all() and (masked[~predicted] == ids[~predicted]).all()


def test_every_position_is_masked_equally_often(masked_batch):
    ids, _, labels = masked_batch
    counts = (labels != PAD).sum(0)[ids[0] > EOS]
    assert all(within(count, 500, 30 / 198) for count in counts)


def test_masked_tokens_are_80_percent_mask_10_random_10_unchanged(masked_batch):
    ids, masked, labels = masked_batch
    predicted = labels != PAD
    total, words = predicted.sum(), MASK - UNK - 1
    masks, unchanged = (masked[predicted] == MASK).sum(), (masked[predicted] == ids[predicted]).sum()
    assert within(masks, total, 0.8)
    assert within(unchanged, total, 0.1 + 0.1 / words)  # a random token may be the original one
    other = masked[predicted & (masked != MASK) & (masked != ids)]
    assert within(len(other), total, 0.1 - 0.1 / words)
    assert other.min() > UNK and other.max() < MASK
    assert within((other < MASK // 2).sum(), len(other), (MASK // 2 - UNK - 1) / words)  # uniform


def test_random_tokens_are_no_special_tokens_and_not_the_mask():
    """With three tokens, so that a mask among the random ones would show."""
    random, mask = np.random.default_rng(2), UNK + 4
    ids = random.integers(UNK + 1, mask, (200, 200))
    masked, labels = mask_tokens(ids, mask, 0.5, random)
    predicted = labels != PAD
    assert within((masked[predicted] == mask).sum(), predicted.sum(), 0.8)
    for word in range(UNK + 1, mask):
        others = predicted & (ids != word)
        assert within((masked[others] == word).sum(), others.sum(), 0.1 / 3)


def test_a_short_text_has_one_masked_token():
    for length in (1, 2, 3):
        _, labels = mask_tokens(np.array([[*range(4, 4 + length), EOS]]), MASK, 0.15, np.random.default_rng(0))
        assert (labels != PAD).sum() == 1


def test_an_epoch_has_every_token_and_rows_end_with_eos():
    data = MaskedBlocks(examples(50, 3, 0, 21, 1), 10, MASK, seed=1, batch_size=3)
    for epoch in range(3):
        texts = [row for indices in data.plan(epoch) for row in rows(data.batch(indices))]
        assert {word for row in texts for word in row} == {EOS, *range(UNK + 1, UNK + 76)}
        assert all(row[-1] == EOS and EOS not in row[:-1] and 2 <= len(row) <= 9 for row in texts)
        assert all(b == a + 1 for row in texts for a, b in pairwise(row[:-1]))


def test_masks_are_a_function_of_seed_epoch_and_batch():
    first, again, other = (MaskedBlocks(examples(300, 200), 20, MASK, seed=seed, batch_size=4) for seed in (1, 1, 2))
    plan = first.plan(2)
    batches = [first.batch(indices) for indices in plan]
    for indices, batch in reversed(list(zip(plan, batches, strict=True))):  # in any order
        same = again.batch(indices)
        assert torch.equal(same.ids, batch.ids) and torch.equal(same.labels, batch.labels)
    assert not all(np.array_equal(a, b) for a, b in zip(plan, other.plan(2), strict=True))


def test_masks_differ_between_epochs():
    data = MaskedBlocks(examples(17), 20, MASK, seed=1, batch_size=1)
    [[first]], [[second]] = data.plan(0), data.plan(1)
    assert first % len(data) == second % len(data)
    assert len({tuple(data.batch(np.array(data.plan(epoch)[0])).labels[0].tolist()) for epoch in range(20)}) > 10


def test_tiles_cover_every_token_once():
    data = MaskedBlocks(examples(50, 3, 0, 16), 10, MASK)
    texts = rows(data.batch(data.cut_tiles()))
    assert sorted(word for row in texts for word in row if word != EOS) == [*range(UNK + 1, UNK + 70)]


def test_second_texts_continue_the_first_or_are_from_another_document():
    documents = examples(300, 120, 200, 2)
    homes = np.repeat([0, 1, 2, 3], [300, 120, 200, 2])
    data = MaskedBlocks(documents, 16, MASK, pairs=True, seed=3, tokens_per_batch=4000)
    random_pairs, total = 0, 0
    for epoch in range(20):
        for indices in data.plan(epoch):
            batch = data.batch(indices)
            for row, label in zip(rows(batch), batch.next_sentence_labels.tolist(), strict=True):
                cut = row.index(EOS)
                first, second = row[:cut], row[cut + 1 : -1]
                assert first and second and row[-1] == EOS and len(row) <= 15
                first_home, second_home = (homes[side[0] - UNK - 1] for side in (first, second))
                assert (first_home != second_home) if label else (second[0] == first[-1] + 1)
                random_pairs, total = random_pairs + label, total + 1
    assert within(random_pairs, total, 0.5)


def test_lengths_do_not_reveal_the_next_sentence_label():
    data = MaskedBlocks(examples(*[20] * 30), 40, MASK, pairs=True, seed=1, batch_size=30)
    batch = data.batch(data.plan(0)[0])
    assert {len(row) for row in rows(batch)} == {22} and set(batch.next_sentence_labels.tolist()) == {0, 1}


def test_a_single_document_gives_both_labels_and_a_single_token_has_no_continuation():
    alone = MaskedBlocks(examples(200), 20, MASK, pairs=True, seed=1, batch_size=50)
    assert alone.batch(alone.plan(0)[0]).next_sentence_labels.float().mean() < 1
    words = MaskedBlocks(examples(1, 1, 1), 20, MASK, pairs=True, seed=1, batch_size=3)
    batch = words.batch(words.plan(0)[0])
    assert batch.next_sentence_labels.tolist() == [1, 1, 1] and batch.ids.shape == (3, 4)
