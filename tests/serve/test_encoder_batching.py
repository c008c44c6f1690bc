"""Encoders in batches: an input gets the prediction that it gets alone, and waits a few milliseconds at most."""

from __future__ import annotations

import pytest
import torch
from torch.nn.utils.rnn import pad_sequence

import headwise
from headwise.decode.driver import use_threads
from headwise.errors import UserError
from headwise.serve.encoder_batching import EncoderBatcher
from headwise.serve.requests import FailedEvent, PredictedEvent

VOCAB = 24


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(1)
    return headwise.build("bert-tiny", vocab=VOCAB, outputs=9, task="classify").double().eval().requires_grad_(False)


@pytest.fixture(autouse=True)
def one_thread():
    with use_threads(1):
        yield


def make_predict(model, sizes):
    """A prediction for each text, and the shape of each batch in `sizes`."""

    def predict(texts):
        if [3] in texts:
            raise UserError("this text has no label")
        ids = pad_sequence([torch.tensor(text) for text in texts], batch_first=True)
        sizes.append(tuple(ids.shape))
        with torch.inference_mode():
            return list(model(ids))

    return predict


class Clock:
    """A clock that goes on when it is told to."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def test_predictions_are_those_of_each_input_alone(model):
    generator, sizes = torch.Generator().manual_seed(2), []
    texts = [torch.randint(4, VOCAB, (int(n),), generator=generator).tolist() for n in torch.randint(1, 40, (60,))]
    predict = make_predict(model, sizes)
    batcher, results = EncoderBatcher(predict, max_tokens=200, max_inputs=16, max_wait=0), {}
    for key, text in enumerate(texts):
        batcher.submit(key, text)
        if key % 7 == 0:
            results |= {event.key: event.prediction for event in batcher.step()}
    while not batcher.idle:
        results |= {event.key: event.prediction for event in batcher.step()}
    assert all(rows <= 16 and rows * length <= 200 for rows, length in sizes)
    assert max(rows for rows, _ in sizes) > 4
    for key, text in enumerate(texts):
        torch.testing.assert_close(results[key], predict([text])[0], rtol=0, atol=1e-12)


def test_inputs_wait_for_others_until_the_oldest_has_waited_long_enough(model):
    clock, sizes = Clock(), []
    batcher = EncoderBatcher(make_predict(model, sizes), max_inputs=3, max_wait=0.003, clock=clock)
    assert batcher.idle and batcher.delay == 0.003 and not batcher.step()
    batcher.submit("a", [5, 6])
    clock.now = 0.002
    batcher.submit("b", [7, 8, 9])
    assert not batcher.step() and batcher.delay == pytest.approx(0.001)
    clock.now = 0.0031
    assert {event.key for event in batcher.step()} == {"a", "b"} and sizes == [(2, 3)]
    for key in range(3):
        batcher.submit(key, [5])
    assert batcher.delay == 0  # full
    batcher.cancel(1)
    assert batcher.waiting == 2 and not batcher.step()
    clock.now = 1
    assert [event.key for event in batcher.step()] == [0, 2]


def test_long_and_short_inputs_are_in_batches_of_their_own(model):
    sizes = []
    batcher = EncoderBatcher(make_predict(model, sizes), max_tokens=64, max_wait=0)
    for key in range(8):
        batcher.submit(key, [5] * (30 if key % 2 else 2))
    while not batcher.idle:
        batcher.step()
    assert sorted(sizes) == [(2, 30), (2, 30), (4, 2)]


def test_an_input_that_fails_does_not_fail_the_others(model):
    batcher = EncoderBatcher(make_predict(model, []), max_wait=0)
    for key, text in enumerate(([5, 6], [3], [7])):
        batcher.submit(key, text)
    events = {event.key: event for event in batcher.step()}
    assert events[1] == FailedEvent(1, "this text has no label")
    assert isinstance(events[0], PredictedEvent) and isinstance(events[2], PredictedEvent)
    with pytest.raises(UserError, match="this input has 9000 tokens and a batch at most 8192; shorten it"):
        batcher.submit("long", [5] * 9000)
    batcher.submit("twice", [5])
    with pytest.raises(UserError, match="request 'twice': it is waiting already"):
        batcher.submit("twice", [5])
