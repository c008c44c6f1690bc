"""The assertions that other tests rest on see what they are there to see."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from headwise.testing import assert_causal, assert_causal_in_embeddings, assert_independent, assert_parity

X = torch.randn(2, 6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
EARLY, LATE = (slice(None), slice(3)), (slice(None), slice(3, None))


def running_sum(x: Tensor) -> Tensor:
    return x.cumsum(1)


def tiny_leak(x: Tensor) -> Tensor:
    """Less than rounding can show, but not less than a gradient can."""
    return x.cumsum(1) + 1e-18 * x.sum(1, keepdim=True)


def leak_by_choice(x: Tensor) -> Tensor:
    """Which token is added depends on later ones; no gradient goes through a choice."""
    return x.cumsum(1) + x.gather(1, x.detach()[:, -1:].argsort(-1))[:, :1]


def round_by_luck(x: Tensor) -> Tensor:
    """The same maths, in an order of summation that depends on the values."""
    if x[:, -1].sum() > X[:, -1].sum():
        return torch.stack([x[:, : t + 1].flip(1).sum(1) for t in range(x.shape[1])], 1)
    return x.cumsum(1)


@pytest.mark.parametrize("function", [running_sum, round_by_luck])
def test_causal_functions_pass_however_they_round(function):
    assert_causal(function, X)


@pytest.mark.parametrize("function", [tiny_leak, leak_by_choice, lambda x: x.flip(1), lambda x: x.roll(-1, 1)])
def test_every_way_to_look_ahead_is_seen(function):
    with pytest.raises(AssertionError):
        assert_causal(function, X)


def test_a_function_that_ignores_its_inputs_is_no_causal_one():
    with pytest.raises(AssertionError, match="no output depends on any input"):
        assert_causal(lambda x: 0 * x, X)


def test_independence_is_of_the_named_places():
    assert_independent(running_sum, X, outputs=EARLY, inputs=LATE)
    with pytest.raises(AssertionError, match="gradient"):
        assert_independent(running_sum, X, outputs=LATE, inputs=EARLY)


def test_parity_scales_with_the_values():
    large = torch.tensor([9.0, 1e-3, -torch.inf])
    assert_parity(large + torch.tensor([0.0, 5e-5, 0.0]), large)
    for wrong in (large + torch.tensor([0.0, 5e-4, 0.0]), large.nan_to_num(neginf=-1e9), large[:2]):
        with pytest.raises(AssertionError):
            assert_parity(wrong, large)
    with pytest.raises(AssertionError, match="differs by"):
        assert_parity(torch.tensor([1e-4]), torch.tensor([2e-4]))


class Model(nn.Module):
    def __init__(self, ahead: int):
        super().__init__()
        self.table, self.ahead = nn.Embedding(9, 4), ahead

    def forward(self, ids: Tensor) -> Tensor:
        framed = nn.functional.pad(ids, (1, 1), value=8)  # as models put special tokens around a text
        return self.table(framed).roll(-self.ahead, 1).cumsum(1)[:, 1:-1]


def test_models_are_tested_by_the_vectors_of_their_tokens():
    ids = torch.tensor([[1, 2, 3, 4], [5, 6, 7, 1]])
    causal, ahead = Model(0), Model(1)
    assert_causal_in_embeddings(causal, lambda: causal(ids), ids)
    with pytest.raises(AssertionError, match="looks ahead"):
        assert_causal_in_embeddings(ahead, lambda: ahead(ids), ids)
    with pytest.raises(AssertionError, match="looks up no vectors"):
        assert_causal_in_embeddings(causal, lambda: causal(ids), ids + 1)
