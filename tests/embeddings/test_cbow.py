"""What CBOW learns, and that its step follows the gradient of the published loss."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from headwise.embeddings.model import Adagrad
from headwise.embeddings.vectors import Vectors
from headwise.embeddings.windows import Rows
from headwise.models.skipgram import CbowConfig

FIRST = 4  # the first id after the special ones


def draw_topics(lines: int = 2000, size: int = 20, seed: int = 0) -> list[np.ndarray]:
    """Each line draws its ten words from one of two topics of `size` words."""
    random = np.random.default_rng(seed)
    return [FIRST + size * (line % 2) + random.integers(size, size=10) for line in range(lines)]


def build_cbow(**settings):
    return CbowConfig(**{"width": 12, "subsample": 0.0, "epochs": 5, **settings}).build(FIRST + 40)


def test_nearest_words_share_the_topic():
    torch.manual_seed(0)
    model = build_cbow()
    model.fit(draw_topics())
    words = [str(number) for number in range(40)]
    vectors = Vectors(words, model.vectors[FIRST:].numpy())
    for word in words:
        assert all(int(other) // 20 == int(word) // 20 for other, _ in vectors.nearest(word, count=10))


def test_held_out_words_beat_random_ones_as_often_as_topics_allow():
    torch.manual_seed(0)
    model = build_cbow()
    model.fit(draw_topics())
    wins, counts = model.rank_contexts(draw_topics(200, seed=1))
    assert counts.sum() == 2000  # each word of the texts once, not each pair
    assert wins.sum() / counts.sum() == pytest.approx(0.75, abs=0.03)


class FixedNoise:
    """Negative samples that are known."""

    def __init__(self, samples: np.ndarray):
        self.samples = samples

    def draw(self, shape: tuple[int, ...]) -> np.ndarray:
        return np.resize(self.samples, shape)


def test_a_step_follows_the_gradient_of_the_loss():
    """Words 4 5 6 and 7 in a row: 5 is predicted from 4 and 6, 4 from 5, 6 from 5; 7 has no context."""
    torch.manual_seed(0)
    model = build_cbow(negatives=3).double()
    model.contexts.normal_()
    ids = np.array([[4, 5, 6, 7]])
    pairs = np.zeros((1, 4, 4), dtype=bool)
    pairs[0, [1, 1, 0, 2], [0, 2, 1, 1]] = True
    samples = np.array([8, 9, 5])
    u, v = (table.clone().requires_grad_() for table in (model.vectors, model.contexts))
    expected = torch.zeros((), dtype=torch.float64)
    drawn = np.resize(samples, 32)
    for word, near in ((4, [5]), (5, [4, 6]), (6, [5])):
        mean = u[near].mean(0)
        expected = expected - F.logsigmoid(mean @ v[word])
        for other in drawn:  # 32 shared samples stand for three
            expected = expected - 3 / 32 * F.logsigmoid(-mean @ v[int(other)])
    expected.backward()
    gradients = {}

    class Recorder(Adagrad):
        def __call__(self, ids, gradient, rate):
            flat = torch.zeros_like(self.table).index_add_(0, ids.flatten(), gradient.flatten(0, 1).to(self.table))
            gradients[id(self.table)] = flat

    loss = model.learn(
        Rows(ids, ids, pairs), FixedNoise(samples), [Recorder(model.vectors), Recorder(model.contexts)], 0.1
    )
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
    torch.testing.assert_close(gradients[id(model.vectors)], u.grad, rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(gradients[id(model.contexts)], v.grad, rtol=1e-5, atol=1e-7)
