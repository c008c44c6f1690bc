"""Streams: rows continue from batch to batch, and every epoch reads the ring except for less than a batch."""

from itertools import pairwise

import numpy as np
import pytest

from headwise.data.examples import Examples
from headwise.data.streams import StreamedBlocks
from headwise.text import BOS, EOS

LENGTHS = (100, 0, 7, 250)


@pytest.fixture
def examples():
    ends = np.cumsum([10, *LENGTHS])
    return Examples.from_rows([([], range(begin, end)) for begin, end in pairwise(ends)])


def ring(examples):
    """All predictions in order."""
    return [pair for _, t in examples for pair in zip([BOS, *t.tolist()], [*t.tolist(), EOS], strict=True)]


def test_rows_continue_between_batches_and_restart_with_an_epoch(examples):
    streams = StreamedBlocks(examples, 16, seed=1, batch_size=3)
    truth = ring(examples)
    for epoch in range(3):
        batches = [streams.batch(indices) for indices in streams.plan(epoch)]
        assert [batch.fresh.tolist() for batch in batches] == [[True] * 3] + [[False] * 3] * (len(batches) - 1)
        assert {tuple(batch.ids.shape) for batch in batches} == {(3, 16)}
        seen = []
        for row in range(3):
            read = [pair for b in batches for pair in zip(b.ids[row].tolist(), b.labels[row].tolist(), strict=True)]
            begin = next(i for i in range(len(truth)) if (truth + truth)[i : i + len(read)] == read)
            seen += [(begin + step) % len(truth) for step in range(len(read))]
        assert len(set(seen)) == len(seen) > len(truth) - 3 * 16


def test_order_is_a_function_of_seed_and_epoch(examples):
    def ids(seed, epoch):
        streams = StreamedBlocks(examples, 16, seed, tokens_per_batch=64)
        return [streams.batch(indices).ids.tolist() for indices in streams.plan(epoch)]

    assert ids(1, 2) == ids(1, 2) and ids(1, 2) != ids(1, 3) and ids(1, 2) != ids(2, 2)
    assert len(ids(1, 0)[0]) == 4


@pytest.mark.parametrize(("lengths", "shape"), [((2, 0), (1, 4)), ((30,), (1, 16)), ((60,), (3, 16))])
def test_a_small_corpus_makes_small_batches(lengths, shape):
    streams = StreamedBlocks(Examples.from_rows([([], [9] * length) for length in lengths]), 16, batch_size=8)
    [indices] = streams.plan(0)
    assert streams.batch(indices).ids.shape == shape
    assert "1 batches an epoch, 0.0 % padding" in streams.summary
