from itertools import product

import pytest
import torch

from headwise.hmm.viterbi import viterbi
from headwise.text import BOS, EOS, PAD

TAGS = 6


def total(tags, emission, transition):
    """The score of one sequence, term by term."""
    order = transition.dim()
    line = [BOS] * (order - 1) + list(tags) + [EOS]
    steps = sum(transition[tuple(line[i : i + order])] for i in range(len(tags) + 1))
    return steps + sum(emission[i, tag] for i, tag in enumerate(tags))


def of_all(emission, transition):
    result = product(range(TAGS), repeat=len(emission))
    return list(max(result, key=lambda tags: total(tags, emission, transition)))


@pytest.mark.parametrize("order", [2, 3])
def test_no_other_sequence_is_better(order):
    lengths = [3, 1, 4]
    transition = torch.randn((TAGS,) * order, dtype=torch.float64)
    emission = torch.randn(3, 4, TAGS, dtype=torch.float64)
    keep = torch.arange(4) < torch.tensor(lengths)[:, None]
    result = viterbi(emission, keep, transition)
    for row, length in enumerate(lengths):
        assert result[row, :length].tolist() == of_all(emission[row, :length], transition)
        assert (result[row, length:] == PAD).all()


def test_forbidden_tags_and_steps_are_avoided():
    transition = torch.zeros(TAGS, TAGS)
    transition[4, 5] = -torch.inf
    emission = torch.zeros(1, 2, TAGS)
    emission[..., :4] = -torch.inf
    emission[0, 0, 4], emission[0, 1, 5] = 2.0, 1.0  # each the best alone, and not together
    assert viterbi(emission, torch.ones(1, 2, dtype=torch.bool), transition).tolist() == [[4, 4]]


def test_padding_on_either_side_changes_nothing():
    transition, emission = torch.randn(TAGS, TAGS), torch.randn(1, 3, TAGS)
    alone = viterbi(emission, torch.ones(1, 3, dtype=torch.bool), transition)
    padded = torch.cat([torch.randn(1, 1, TAGS), emission, torch.randn(1, 2, TAGS)], dim=1)
    keep = torch.tensor([[False, True, True, True, False, False]])
    assert viterbi(padded, keep, transition)[:, 1:4].equal(alone)


def test_nothing_to_tag():
    assert viterbi(torch.zeros(2, 0, TAGS), torch.ones(2, 0, dtype=torch.bool), torch.zeros(TAGS, TAGS)).shape == (2, 0)
