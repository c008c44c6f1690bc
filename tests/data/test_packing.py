"""Packing: every block once, documents apart, hardly any padding."""

from itertools import pairwise

import numpy as np
import pytest

from headwise.data.blocks import Blocks
from headwise.data.examples import Examples
from headwise.data.packing import PackedBlocks, pack_lengths
from headwise.text import BOS, PAD


@pytest.fixture
def examples():
    """300 documents of up to 40 tokens, and a long one; their tokens tell where they stand."""
    random = np.random.default_rng(1)
    lengths = [*random.integers(0, 40, 300), 500]
    ends = np.cumsum([10, *lengths])
    return Examples.from_rows([([], range(begin, end)) for begin, end in pairwise(ends)])


def split_blocks(batch):
    """The blocks of a packed batch, as rows of (id, label)."""
    for ids, labels, segment, pos in zip(batch.ids, batch.labels, batch.segment, batch.pos, strict=True):
        assert ((segment == 0) == (labels == PAD)).all() and (np.diff(segment[segment > 0]) >= 0).all()
        for number in range(1, int(segment.max()) + 1):
            here = segment == number
            assert pos[here].tolist() == list(range(int(here.sum())))
            yield tuple(zip(ids[here].tolist(), labels[here].tolist(), strict=True))


def test_an_epoch_has_the_same_blocks_as_without_packing(examples):
    plain, packed = (kind(examples, 48, seed=3, batch_size=4) for kind in (Blocks, PackedBlocks))
    for epoch in range(2):
        blocks = [block for indices in packed.plan(epoch) for block in split_blocks(packed.batch(indices))]
        expected = []
        for indices in plain.plan(epoch):
            batch = plain.batch(indices)
            for ids, labels in zip(batch.ids.tolist(), batch.labels.tolist(), strict=True):
                expected.append(tuple((a, b) for a, b in zip(ids, labels, strict=True) if b != PAD))
        assert sorted(blocks) == sorted(expected)


def test_rows_are_full_and_batches_keep_their_size(examples):
    packed = PackedBlocks(examples, 48, seed=3, tokens_per_batch=200)
    batches = [packed.batch(indices) for indices in packed.plan(0)]
    assert {len(batch) for batch in batches[:-1]} == {4}
    assert max(batch.ids.shape[1] for batch in batches) == 48
    real, cells = (sum(count) for count in zip(*((b.tokens, b.ids.numel()) for b in batches), strict=True))
    assert 1 - real / cells < 0.02
    assert f"{len(batches)} batches an epoch, " in packed.summary and packed.count_batches()[1] < 0.02


def test_order_is_a_function_of_seed_and_epoch(examples):
    def ids(seed, epoch):
        packed = PackedBlocks(examples, 48, seed, batch_size=4)
        return [packed.batch(indices).ids.tolist() for indices in packed.plan(epoch)]

    assert ids(1, 2) == ids(1, 2) and ids(1, 2) != ids(1, 3) and ids(1, 2) != ids(2, 2)


def test_short_documents_alone(examples):
    short = Examples.from_rows([([], []), ([], [7]), ([], [])])
    packed = PackedBlocks(short, 8, batch_size=2)
    [indices] = packed.plan(0)
    batch = packed.batch(indices)
    assert batch.ids.shape == (1, 4) and (batch.ids == BOS).sum() == 3 and batch.segment.max() == 3


@pytest.mark.parametrize("longest", [1, 5, 64])
def test_every_block_is_packed_and_rows_do_not_overflow(longest):
    counts = np.random.default_rng(longest).integers(0, 50, longest + 1)
    counts[0] = 0
    packed = np.zeros_like(counts)
    for number, shape in pack_lengths(counts):
        assert number > 0 and 0 < sum(shape) <= longest
        np.add.at(packed, list(shape), number)
    assert packed.tolist() == counts.tolist()
