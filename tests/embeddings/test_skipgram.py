"""What skip-gram learns, and that it learns by the published loss."""

import math

import numpy as np
import pytest
import torch

from headwise.embeddings.model import Adagrad, NegativeSampler, label_and_weigh, sgns_loss
from headwise.embeddings.vectors import Vectors
from headwise.embeddings.windows import LENGTH, Text, make_rows, subsample
from headwise.errors import UserError
from headwise.models.skipgram import SkipGramConfig

FIRST = 4  # the first id after the marks


def topics(lines: int = 2000, size: int = 20, seed: int = 0) -> list[np.ndarray]:
    """Each line draws its ten words from one of two topics of `size` words."""
    random = np.random.default_rng(seed)
    return [FIRST + size * (line % 2) + random.integers(size, size=10) for line in range(lines)]


def model(**settings):
    return SkipGramConfig(**{"width": 12, "subsample": 0.0, "epochs": 3, **settings}).build(FIRST + 40)


def test_nearest_words_share_the_topic():
    learnt = model()
    learnt.fit(topics())
    words = [str(number) for number in range(40)]
    vectors = Vectors(words, learnt.vectors[FIRST:].numpy())
    for word in words:
        near = [int(other) for other, _ in vectors.nearest(word, count=10)]
        assert all(other // 20 == int(word) // 20 for other in near)


def test_held_out_contexts_beat_random_words_as_often_as_topics_allow():
    learnt = model()
    learnt.fit(topics())
    wins, pairs = learnt.rank_contexts(topics(200, seed=1))
    # A random word is of the other topic half of the time, and then loses; of the same topic it is an even match.
    assert wins.sum() / pairs.sum() == pytest.approx(0.75, abs=0.02)


def test_the_same_seed_learns_the_same_vectors():
    result = []
    for _ in range(2):
        torch.manual_seed(3)
        learnt = model(epochs=1)
        learnt.fit(topics(200))
        result.append(learnt.vectors)
    assert torch.equal(*result)


def test_loss_and_slopes_are_those_of_equation_4():
    """One row: words a, b, c in a line, all pairs at distance 1, two random words for each pair."""
    generator = torch.Generator().manual_seed(0)
    u, v, r = (torch.randn(n, 5, generator=generator, dtype=torch.float64) for n in (3, 3, 4))
    pairs = np.array([[[False, True, False], [True, False, True], [False, True, False]]])
    label, weight = (each.double() for each in label_and_weigh(pairs, drawn=4, negatives=2))
    u.requires_grad_(), v.requires_grad_(), r.requires_grad_()

    def log_sigmoid(x):
        return -torch.log1p(torch.exp(-x))

    expected = torch.zeros((), dtype=torch.float64)
    for word, near in ((0, 1), (1, 0), (1, 2), (2, 1)):
        expected = expected - log_sigmoid(u[word] @ v[near])
        for other in range(4):  # four shared words stand for two
            expected = expected - 2 / 4 * log_sigmoid(-u[word] @ r[other])
    expected.backward()
    loss, slope_u, slope_v = sgns_loss(u.detach()[None], torch.cat([v, r]).detach()[None], weight, label)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-12)
    torch.testing.assert_close(slope_u[0], u.grad, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(slope_v[0], torch.cat([v.grad, r.grad]), rtol=1e-10, atol=1e-12)


def test_adagrad_adds_up_rows_that_stand_twice():
    table = torch.zeros(4, 2)
    Adagrad(table)(torch.tensor([[1, 3, 1]]), torch.tensor([[[1.0, 2.0], [3.0, 3.0], [2.0, 1.0]]]), rate=0.5)
    # Row 1 has slope (3, 3), row 3 too; the root of their mean square is 3.
    torch.testing.assert_close(table, torch.tensor([[0.0, 0.0], [-0.5, -0.5], [0.0, 0.0], [-0.5, -0.5]]))


def test_settings_are_those_of_the_paper():
    """Mikolov et al. (2013), section 2.2: counts to the power 3/4, 5 to 20 random words for small data."""
    config = SkipGramConfig()
    assert config.power == 0.75 and 5 <= config.negatives <= 20 and config.window == 5


def test_random_words_follow_counts_to_the_power():
    counts = np.array([0, 0, 0, 0, 1, 16, 81, 0])
    drawn = NegativeSampler(counts, 0.75, np.random.default_rng(0)).draw((90_000,))
    share = np.bincount(drawn, minlength=8) / 90_000
    expected = np.array([0, 0, 0, 0, 1, 8, 27, 0]) / 36
    assert share[expected == 0].sum() == 0
    assert np.abs(share - expected).max() < 4 * math.sqrt(0.25 / 90_000)


def test_frequent_words_are_thinned_out_by_the_root_of_their_share():
    text = Text.from_ids([np.r_[np.full(90_000, 4), np.full(10_000, 5), np.full(50, 6)]])
    shares = np.bincount(text.words) / len(text)
    kept = subsample(text, shares, 0.01, np.random.default_rng(0))
    left = np.bincount(kept.words, minlength=7)[4:]
    assert left[0] == pytest.approx(90_000 * math.sqrt(0.01 / shares[4]), rel=0.03)
    assert left[1] == pytest.approx(10_000 * math.sqrt(0.01 / shares[5]), rel=0.05)
    assert left[2] == 50
    assert subsample(text, shares, 0.0, np.random.default_rng(0)) is text


def test_rows_hold_every_pair_once_and_none_across_texts():
    random = np.random.default_rng(0)
    texts = [FIRST + np.arange(start, start + n) for start, n in ((0, 70), (70, 1), (71, 30))]  # distinct words
    result = [
        (int(each.words[row, word]), int(each.contexts[row, place]))
        for each in make_rows(Text.from_ids(texts), 3, random, shrink=False, batch=2)
        for row, word, place in np.argwhere(each.pairs)
    ]
    expected = [(int(a), int(b)) for text in texts for a in text for b in text if 0 < abs(a - b) <= 3]
    assert sorted(result) == sorted(expected)


def test_windows_shrink_so_that_near_words_make_more_pairs():
    text = Text.from_ids([FIRST + np.arange(100 * LENGTH)])
    distances = np.concatenate(
        [
            np.abs(each.words[row, word] - each.contexts[row, place])
            for each in make_rows(text, 4, np.random.default_rng(0))
            for row, word, place in [np.nonzero(each.pairs)]
        ]
    )
    shares = np.bincount(distances)[1:] / (2 * len(text))
    assert shares == pytest.approx([1.0, 0.75, 0.5, 0.25], abs=0.03)


def test_unknown_words_are_as_if_they_were_not_there():
    assert Text.from_ids([[4, 3, 5], [3]]).words.tolist() == [4, 5]


def test_a_text_without_words_is_refused():
    with pytest.raises(UserError, match="nothing to learn vectors from"):
        model().fit([[3], [4]])
