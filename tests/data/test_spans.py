"""Span corruption: published lengths, the paper's example, and the way back."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwise.data.examples import Examples
from headwise.data.spans import (
    SENTINELS,
    SpanCorruptionBlocks,
    compute_lengths,
    compute_text_length,
    corrupt_spans,
    count_spans,
    draw_noise_mask,
    draw_partition,
    restore_text,
)
from headwise.text import BOS, EOS, PAD

VOCAB = 1000 + SENTINELS


def test_568_tokens_become_512_and_114():
    data = SpanCorruptionBlocks(Examples.from_rows([([], range(4, 4 + 568))]), 512, VOCAB, batch_size=1)
    batch = data.batch(data.plan(0)[0])
    assert compute_text_length(512, 0.15, 3.0) == 568
    assert batch.source.shape == (1, 512) and batch.target_out.shape == (1, 114)


def test_the_example_of_the_paper():
    words = ["Thank", "you", "for", "inviting", "me", "to", "your", "party", "last", "week", "."]
    x, y, z = VOCAB - 1, VOCAB - 2, VOCAB - 3
    ids = np.arange(4, 4 + len(words))
    removed = np.isin(words, ["for", "inviting", "last"])
    source, target = corrupt_spans(ids, removed, VOCAB)
    names = dict(zip(ids.tolist(), words, strict=True)) | {x: "<X>", y: "<Y>", z: "<Z>"}
    assert " ".join(map(names.get, source)) == "Thank you <X> me to your party <Y> week ."
    assert " ".join(map(names.get, target)) == "<X> for inviting <Y> last <Z>"


@given(st.lists(st.tuples(st.integers(4, 999), st.booleans()), max_size=80))
@settings(max_examples=150, deadline=None)
def test_source_and_target_restore_the_text(tokens):
    """Whatever is missing."""
    ids = np.array([token for token, _ in tokens], np.int64)
    removed = np.array([noise for _, noise in tokens], bool)
    source, target = corrupt_spans(ids, removed, VOCAB)
    assert restore_text(source, target, VOCAB) == ids.tolist()
    assert not set(ids[removed]) - set(target) and len(source) + len(target) <= 2 * len(ids) + 2


@given(st.integers(0, 700), st.floats(0.01, 0.99), st.floats(1, 20), st.integers(0, 2**32))
@settings(max_examples=150, deadline=None)
def test_removed_spans_have_the_share_and_the_mean_length(length, share, span, seed):
    removed, spans = count_spans(length, share, span)
    noise = draw_noise_mask(length, share, span, np.random.default_rng(seed))
    assert len(noise) == length and noise.sum() == removed
    begins = noise & ~np.concatenate([[False], noise[:-1]]) if length else noise
    assert begins.sum() == spans <= SENTINELS
    if length > 1:
        assert not noise[0] and noise[-1]
        source, target = corrupt_spans(np.arange(4, 4 + length), noise, 2000)
        assert (len(source) + 1, len(target) + 1) == compute_lengths(length, share, span)
        assert target.count(1999) == 1 and sum(token >= 1900 for token in source) == spans


def test_every_partition_is_equally_probable():
    random = np.random.default_rng(0)
    seen, often = np.unique([draw_partition(5, 3, random) for _ in range(6000)], axis=0, return_counts=True)
    assert len(seen) == 6 and (seen.sum(1) == 5).all() and seen.min() == 1
    assert abs(often - 1000).max() < 4.5 * (6000 / 6 * 5 / 6) ** 0.5


@pytest.mark.parametrize("context", [4, 5, 17, 128])
def test_sources_fit_the_context(context):
    data = SpanCorruptionBlocks(
        Examples.from_rows([([], range(4, 400)), ([], [5]), ([], [])]), context, VOCAB, seed=1, batch_size=7
    )
    restored = []
    for indices in data.plan(0):
        batch = data.batch(indices)
        assert batch.source.shape[1] <= context and (batch.target_in[:, 0] == BOS).all()
        for source, target in zip(batch.source.tolist(), batch.target_out.tolist(), strict=True):
            source, target = ([token for token in row if token not in (PAD, EOS)] for row in (source, target))
            restored += restore_text(source, target, VOCAB)
    assert set(restored) == set(range(4, 400))


def test_spans_differ_between_epochs_and_are_equal_for_a_seed():
    first, again = (
        SpanCorruptionBlocks(Examples.from_rows([([], range(4, 60))]), 64, VOCAB, seed=1, batch_size=1)
        for _ in range(2)
    )
    targets = [first.batch(first.plan(epoch)[0]).target_out.tolist() for epoch in range(5)]
    assert len(set(map(str, targets))) == 5
    assert targets == [again.batch(again.plan(epoch)[0]).target_out.tolist() for epoch in range(5)]
