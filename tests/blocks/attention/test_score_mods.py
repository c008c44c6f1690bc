"""Score mods: golden values, and what each masks."""

import pytest
import torch

from headwise.blocks.attention.score_mods import AttentionInputs, AttentionLayout, Causal, Padding, Segments, Window
from headwise.blocks.positions.alibi import Alibi, compute_alibi_slopes
from headwise.blocks.positions.relative import T5Bias, bucket_distances
from headwise.blocks.positions.rotary import Rotary


def make_layout(queries: int, keys: int, **rest: object) -> AttentionLayout:
    """The last queries of so many keys."""
    pos = torch.arange(keys)
    return AttentionLayout(queries, keys, pos[keys - queries :], pos, **rest)


def test_buckets_both_ways() -> None:
    known = {0: 0, -1: 1, 1: 17, -7: 7, -8: 8, -16: 10, -32: 12, -64: 14, -91: 15, -10_000: 15, 500: 31}
    assert bucket_distances(torch.tensor([*known])).tolist() == [*known.values()]
    assert bucket_distances(torch.tensor([-90])).item() == 14


def test_causal_buckets() -> None:
    known = {0: 0, -15: 15, -16: 16, -32: 21, -64: 26, -113: 31, -10_000: 31, 1: 0, 50: 0}
    assert bucket_distances(torch.tensor([*known]), both_ways=False).tolist() == [*known.values()]
    assert bucket_distances(torch.tensor([-112]), both_ways=False).item() == 30


def test_the_causal_mask_aligns_the_last_query_with_the_last_key() -> None:
    assert Causal().mask(make_layout(3, 5)).tolist() == [
        [False, False, False, True, True],
        [False, False, False, False, True],
        [False, False, False, False, False],
    ]
    assert Causal().mask(make_layout(1, 5)) is None


def test_a_window_masks_distant_keys() -> None:
    hidden = Window(left=2, right=1).mask(make_layout(5, 5))
    assert (~hidden).long().tolist() == [
        [1, 1, 0, 0, 0],
        [1, 1, 1, 0, 0],
        [1, 1, 1, 1, 0],
        [0, 1, 1, 1, 1],
        [0, 0, 1, 1, 1],
    ]
    assert torch.equal(Window(left=2, right=1).mask(make_layout(2, 5)), hidden[3:])


def test_segments_mask_other_documents() -> None:
    segment = torch.tensor([[0, 0, 1, 1, 1], [0, 1, 1, 2, 2]])
    hidden = Segments().mask(make_layout(5, 5, query_segment=segment, key_segment=segment))
    assert hidden.shape == (2, 1, 5, 5)
    for row in range(2):
        for i in range(5):
            for j in range(5):
                assert hidden[row, 0, i, j] == (segment[row, i] != segment[row, j])


def test_masks_are_joined_by_or() -> None:
    keep = torch.tensor([[True, True, False], [True, True, True]])
    q = torch.zeros(2, 1, 3, 2)
    inputs = AttentionInputs(q, q, q, 1.0, make_layout(3, 3, keep=keep), (Causal(), Padding(), Segments()))
    expected = torch.ones(3, 3, dtype=torch.bool).triu(1) | ~keep[:, None, None, :]
    assert torch.equal(inputs.build_mask(), expected)
    assert [type(mod) for mod in inputs.list_masking_mods()] == [Causal, Padding]


def test_slopes_between_powers_of_two() -> None:
    assert compute_alibi_slopes(8) == [2.0**-i for i in range(1, 9)]
    assert compute_alibi_slopes(12) == [*compute_alibi_slopes(8), *(2 ** (-8 * i / 16) for i in (1, 3, 5, 7))]


@pytest.mark.parametrize("mod", [Alibi(2), T5Bias(2)])
def test_biases_of_rows_with_positions_of_their_own(mod: Alibi | T5Bias) -> None:
    pos = torch.tensor([[0, 1, 2], [0, 5, 9]])
    together = mod.bias(AttentionLayout(3, 3, pos, pos))
    assert together.shape == (2, 2, 3, 3)
    for row in range(2):
        assert torch.equal(together[row], mod.bias(AttentionLayout(3, 3, pos[row], pos[row])))


def test_rotated_scores_depend_on_the_distance_alone() -> None:
    rotary, q, k = Rotary(8), torch.randn(8), torch.randn(8)

    def score(i: int, j: int) -> float:
        turned = (rotary.rotate(x.view(1, 1, 1, 8), torch.tensor([at])) for x, at in ((q, i), (k, j)))
        return float(torch.mul(*turned).sum())

    assert score(3, 10) == pytest.approx(score(503, 510), abs=1e-3)
    assert score(3, 10) != pytest.approx(score(10, 3), abs=1e-3)
    assert score(7, 7) == pytest.approx(float(q @ k), abs=1e-5)
