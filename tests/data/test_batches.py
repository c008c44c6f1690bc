import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwise.data.batches import Batches
from headwise.data.config import TextDataConfig
from headwise.data.corpora import open_training_pairs

LENGTHS = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), min_size=1, max_size=200).map(np.array)


def cost(lengths, indices):
    return len(indices) * int((lengths[indices] + 1).max(axis=0).sum())


@settings(deadline=None)
@given(lengths=LENGTHS, seed=st.integers(0, 99), epoch=st.integers(0, 99), budget=st.integers(1, 400))
def test_every_example_once_and_within_the_budget(lengths, seed, epoch, budget):
    batches = Batches(lengths, seed, tokens_per_batch=budget)
    plan = batches.plan(epoch)
    assert len(plan) == len(batches)
    assert sorted(np.concatenate(plan).tolist()) == list(range(len(lengths)))
    assert all(cost(lengths, indices) <= budget or len(indices) == 1 for indices in plan)
    padded = sum(cost(lengths, indices) for indices in plan)
    assert batches.padding == pytest.approx(1 - (lengths + 1).sum() / padded)


@settings(deadline=None)
@given(lengths=LENGTHS, size=st.integers(1, 50))
def test_fixed_size(lengths, size):
    sizes = sorted(len(indices) for indices in Batches(lengths, 0, batch_size=size).plan(0))
    rest = len(lengths) % size
    assert sizes == ([rest] if rest else []) + [size] * (len(lengths) // size)


def same(left, right):
    return len(left) == len(right) and all(np.array_equal(a, b) for a, b in zip(left, right, strict=True))


def test_order_depends_on_seed_and_epoch_alone():
    lengths = np.random.default_rng(0).integers(1, 20, (2000, 2))
    batches = Batches(lengths, seed=1, tokens_per_batch=500)
    first = batches.plan(3)
    batches.plan(4)
    assert same(first, batches.plan(3))
    assert same(first, Batches(lengths, seed=1, tokens_per_batch=500).plan(3))
    assert not same(first, batches.plan(4))
    assert not same(first, Batches(lengths, seed=2, tokens_per_batch=500).plan(3))


def test_partners_change_between_epochs():
    batches = Batches(np.full((100, 2), 5), seed=1, batch_size=10)
    groups = [{frozenset(indices.tolist()) for indices in batches.plan(epoch)} for epoch in (0, 1)]
    assert not groups[0] & groups[1]


def test_padding_is_small_on_real_words():
    pairs = open_training_pairs(TextDataConfig(name="cmudict"))
    lengths = np.array([(len(source), len(target.split())) for source, target in pairs])
    assert Batches(lengths, seed=1, tokens_per_batch=8192).padding < 0.02
    assert Batches(lengths, seed=1, batch_size=256).padding < 0.02


def test_batches_are_nearly_full():
    lengths = np.random.default_rng(0).integers(3, 40, (20_000, 1)) + np.array([[0, 2]])
    plan = Batches(lengths, seed=1, tokens_per_batch=4096).plan(0)
    assert np.median([cost(lengths, indices) for indices in plan]) > 0.95 * 4096


def test_no_examples_no_batches():
    assert list(Batches(np.empty((0, 2), np.int32), seed=1, batch_size=4).plan(0)) == []
    assert Batches(np.empty((0, 2), np.int32), seed=1, tokens_per_batch=4).padding == 0


@pytest.mark.parametrize("limits", [{}, {"tokens_per_batch": 5, "batch_size": 5}])
def test_exactly_one_limit(limits):
    with pytest.raises(ValueError, match="either tokens_per_batch or batch_size"):
        Batches(np.array([[1, 1]]), seed=1, **limits)
