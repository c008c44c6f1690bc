"""Blocks of long texts: nothing lost, nothing seen twice, nothing from the next document."""

from hashlib import sha256

import numpy as np
import pytest

from headwise.data.blocks import Blocks
from headwise.data.examples import Examples
from headwise.text import BOS, EOS, PAD

LENGTHS = (50, 3, 0, 21, 7)


@pytest.fixture
def examples():
    """Documents whose tokens are all different."""
    tokens = iter(range(10, 1000))
    return Examples.from_rows([([], [next(tokens) for _ in range(length)]) for length in LENGTHS])


def collect_labels(blocks, epoch):
    """Every label of an epoch, in no order."""
    labels = [blocks.batch(starts).labels.flatten() for starts in blocks.plan(epoch)]
    return np.sort(np.concatenate(labels))


def test_documents_start_with_bos_and_end_with_eos(examples):
    paired = Examples.from_rows([([5] * number, target) for number, (_, target) in enumerate(examples)])
    for blocks in (Blocks(examples, 60), Blocks(paired, 60)):  # sources, where there are any, are passed over
        batch = blocks.batch(blocks.draw_starts(0))
        for (_, target), ids, labels in zip(examples, batch.ids.tolist(), batch.labels.tolist(), strict=True):
            assert ids[: len(target) + 1] == [BOS, *target] and not any(ids[len(target) + 1 :])
            assert labels[: len(target) + 1] == [*target, EOS] and not any(labels[len(target) + 1 :])


def test_batches_are_those_of_earlier_versions():
    """Runs that were begun before texts were read from the mapped examples go on with the same bits."""
    random = np.random.default_rng(0)
    lengths = (700, 3, 0, 41, 8, 300, 7, 90, 16, 17)
    examples = Examples.from_rows([([], random.integers(4, 99, length).tolist()) for length in lengths])
    for size, expected in (({"tokens_per_batch": 80}, "1e06fdd28f073b60"), ({"batch_size": 4}, "e015dc14c1670637")):
        blocks = Blocks(examples, 16, 3, **size)
        digest = sha256()
        for starts in (starts for epoch in range(3) for starts in blocks.plan(epoch)):
            batch = blocks.batch(starts)
            digest.update(str(tuple(batch.ids.shape)).encode())
            digest.update(batch.ids.numpy().tobytes() + batch.labels.numpy().tobytes())
        assert digest.hexdigest()[:16] == expected


def test_an_epoch_has_the_start_of_each_text_and_no_token_more_than_twice(examples):
    blocks = Blocks(examples, context=8, seed=1, batch_size=3)
    for epoch in range(3):
        labels = collect_labels(blocks, epoch)
        values, counts = np.unique(labels[labels != PAD], return_counts=True)
        assert set(values) == {EOS, *range(10, 10 + sum(LENGTHS))}
        assert counts[values > EOS].max() <= 2  # a first block overlaps the one after the random offset


def test_labels_follow_their_inputs_and_stay_in_their_document(examples):
    blocks = Blocks(examples, context=8, seed=1, batch_size=4)
    homes = np.repeat(np.arange(len(LENGTHS)), LENGTHS)
    for starts in blocks.plan(0):
        batch = blocks.batch(starts)
        assert batch.ids.shape[1] <= 8 and ((batch.ids == PAD) == (batch.labels == PAD)).all()
        for ids, labels in zip(batch.ids.tolist(), batch.labels.tolist(), strict=True):
            pairs = [(a, b) for a, b in zip(ids, labels, strict=True) if a != PAD]
            assert all(b == a + 1 for a, b in pairs if a > EOS and b > EOS)
            assert len({homes[token - 10] for pair in pairs for token in pair if token > EOS}) <= 1


def test_long_texts_are_cut_differently_in_every_epoch_and_equally_for_a_seed(examples):
    first, again, other = (Blocks(examples, 8, seed, batch_size=3) for seed in (1, 1, 2))
    starts = [tuple(np.sort(first.draw_starts(epoch))) for epoch in range(6)]
    assert len(set(starts)) > 1
    assert starts == [tuple(np.sort(again.draw_starts(epoch))) for epoch in range(6)]
    assert starts != [tuple(np.sort(other.draw_starts(epoch))) for epoch in range(6)]


@pytest.mark.parametrize("stride", [1, 3, 4, 8])
def test_windows_count_every_token_once_with_enough_context(examples, stride):
    blocks = Blocks(examples, context=8)
    starts, firsts = blocks.cut_windows(stride)
    batch = blocks.batch(starts)
    counts = np.arange(batch.labels.shape[1]) >= firsts[:, None]
    labels = batch.labels.numpy()
    counted = labels[counts & (labels != PAD)]
    assert sorted(counted) == sorted([*range(10, 10 + sum(LENGTHS)), *[EOS] * len(LENGTHS)])
    later = firsts > 0
    assert (firsts[later] == 8 - stride).all() if stride < 8 else not later.any()


def test_batches_keep_to_their_budget(examples):
    by_tokens = Blocks(examples, context=8, seed=1, tokens_per_batch=32)
    assert max(by_tokens.batch(starts).ids.numel() for starts in by_tokens.plan(0)) <= 32
    by_rows = Blocks(examples, context=8, seed=1, batch_size=2)
    assert {len(starts) for starts in by_rows.plan(0)} <= {1, 2}
    assert len(by_rows) == sum(LENGTHS) + len(LENGTHS)
