"""Scheduled sampling: how many of its own tokens a decoder reads, which, and when."""

import numpy as np
import pytest
import torch
from torch import nn

import headwise
from headwise.data.collate import collate
from headwise.data.examples import Examples
from headwise.runs import Run
from headwise.runs.checkpoint import load_latest
from headwise.tasks.base import PairData
from headwise.tasks.scheduled_sampling import SCHEDULED_SAMPLING, Linear, sample_inputs, sample_predictions
from headwise.tasks.transduce import Transduce, TransduceConfig
from headwise.text import BOS, PAD
from headwise.text.tokenisers import Tokenisers
from headwise.text.vocabulary import Characters
from headwise.train.config import TrainConfig
from headwise.train.loop import train
from headwise.train.observers import Observer

VOCAB = 12


class Successor(nn.Module):
    """Is sure that after a token comes the next number."""

    def forward(self, source, target):
        return 50.0 * nn.functional.one_hot((target + 1) % VOCAB, VOCAB).float()


@pytest.fixture
def batch():
    random = np.random.default_rng(0)
    pairs = [([4], random.integers(4, VOCAB - 1, n).tolist()) for n in (60, 30, 60) * 40]
    return collate(Examples.from_rows(pairs), np.arange(len(pairs)))


@pytest.mark.parametrize("draw", [False, True])
def test_an_own_token_is_the_guess_after_the_gold_token_before_it(batch, draw):
    gold = batch.target_in
    read = sample_inputs(Successor(), batch, Linear(max_rate=1.0, sample=draw), progress=1.0)
    assert (read[:, 0] == BOS).all()
    inner = gold[:, 1:] != PAD
    after = gold[:, :-1] + 1
    after[:, 0] = sample_predictions(Successor()(None, gold[:, :1]), draw=False)[
        :, 0
    ]  # BOS + 1 is EOS, which may be written
    assert (read[:, 1:] == after)[inner].all()
    assert (read[:, 1:] == PAD)[~inner].all()


def test_the_share_of_own_tokens_grows_with_the_budget(batch):
    places = (batch.target_in != PAD) & (batch.target_in != BOS)
    for progress in (0.0, 0.5, 1.0):
        read = sample_inputs(Successor(), batch, Linear(max_rate=0.4), progress)
        own = (read != batch.target_in)[places].float().mean().item()
        # A guess is right by chance one time in seven.
        assert own == pytest.approx(0.4 * progress * 6 / 7, abs=0.02)


def test_drawn_tokens_follow_the_distribution_and_are_never_marks_that_nobody_writes():
    probabilities = torch.tensor([0.3, 0.2, 0.25, 0.0, 0.25])
    drawn = sample_predictions(probabilities.log().expand(1, 20_000, 5).clone(), draw=True)
    shares = torch.bincount(drawn[0], minlength=5) / 20_000
    torch.testing.assert_close(shares, torch.tensor([0.0, 0.0, 0.5, 0.0, 0.5]), atol=0.02, rtol=0)


@pytest.mark.parametrize("kind", ["linear", "exponential", "inverse-sigmoid"])
def test_schedules_rise_from_nearly_nothing_to_nearly_most(kind):
    schedule = SCHEDULED_SAMPLING.parse({"kind": kind, "max_rate": 0.5})
    shares = [schedule.rate(spent) for spent in np.linspace(0, 1, 101)]
    assert shares == sorted(shares)
    assert shares[0] < 0.04
    assert 0.48 < shares[-1] <= 0.5


def test_inverse_sigmoid_has_half_the_gold_at_k_ln_k():
    schedule = SCHEDULED_SAMPLING.parse({"kind": "inverse-sigmoid", "k": 10.0})
    assert schedule.gold(10 * np.log(10)) == pytest.approx(0.5)


def task(**settings) -> Transduce:
    letters = Characters("abcdefgh")
    return Transduce(TransduceConfig(**settings), Tokenisers(letters, letters))


def test_teacher_forcing_is_the_default_and_takes_no_second_pass(batch):
    assert sample_inputs(None, batch, task().config.scheduled_sampling, progress=1.0) is batch.target_in


@pytest.mark.parametrize("kind", ["transformer-tiny", "bahdanau-tiny"])
def test_training_tells_the_task_how_far_it_is_and_resumes_to_the_same_bits(tmp_path, kind):
    random = np.random.default_rng(0)
    examples = Examples.from_rows([(row, row[::-1]) for row in random.integers(4, VOCAB, (64, 5)).tolist()])
    seen = {}

    def learnt(name, *stops):
        run = Run.create(tmp_path / name, {})
        for steps in stops:
            torch.manual_seed(0)
            teacher = Noting(task(scheduled_sampling={"max_rate": 0.5}, sample=0))
            model = headwise.build(kind, vocab=VOCAB, dropout=0.0)
            data = PairData(examples, seed=1, batch_size=16)
            config = TrainConfig(steps=4, threads=1, schedule={"kind": "constant", "lr": 0.01})
            observers = [] if steps == 4 else [StopAt(steps)]
            try:
                train(run, model, teacher, data, config.replace(log_every=1, checkpoint_every=1), observers=observers)
            except Stopped:
                continue
        seen[name] = teacher.progress
        return load_latest(run).model

    whole, broken = learnt("whole", 4), learnt("broken", 2, 4)
    assert seen["whole"] == seen["broken"] == 3 / 4  # what was spent before the last step
    assert all(torch.equal(whole[name], broken[name]) for name in whole)


class Noting:
    """A task that notes how far training was at its last loss."""

    progress = 0.0

    def __init__(self, inner):
        self.inner, self.init_state = inner, inner.init_state

    def loss(self, model, batch, state):
        self.progress = state.progress
        return self.inner.loss(model, batch, state)


class Stopped(BaseException):
    pass


class StopAt(Observer):
    def __init__(self, step: int):
        self.step = step

    def on_metrics(self, row):
        if row["step"] == self.step:
            raise Stopped
