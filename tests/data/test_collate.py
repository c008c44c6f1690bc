import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headwise.data.collate import collate
from headwise.data.examples import Examples
from headwise.text import BOS, EOS, PAD

IDS = st.lists(st.integers(4, 50), max_size=8)


@settings(deadline=None)
@given(rows=st.lists(st.tuples(IDS, IDS), min_size=1, max_size=12), data=st.data())
def test_batch_holds_the_examples(rows, data):
    indices = data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=10))
    batch = collate(Examples.from_rows(rows), np.array(indices))
    assert batch.ids.tolist() == indices
    assert len(batch) == len(indices)
    assert batch.tokens == sum(len(rows[number][1]) + 1 for number in indices)
    wanted = {
        "source": [[*rows[number][0], EOS] for number in indices],
        "target_in": [[BOS, *rows[number][1]] for number in indices],
        "target_out": [[*rows[number][1], EOS] for number in indices],
    }
    for name, lines in wanted.items():
        width = max(map(len, lines))
        padded = [line + [PAD] * (width - len(line)) for line in lines]
        assert getattr(batch, name).tolist() == padded


def test_tensors_are_indices_and_move():
    batch = collate(Examples.from_rows([([4], [5, 6])]), np.array([0]))
    moved = batch.to("meta", non_blocking=True)
    for name in ("source", "target_in", "target_out", "ids"):
        assert getattr(batch, name).dtype == torch.int64
        assert getattr(moved, name).device.type == "meta"
