"""Engines compute the outputs of the model itself."""

import headwise
from headwise.decode.config import DecodeConfig
from headwise.serve.batching import ContinuousBatcher
from headwise.serve.loading import put_on_engine
from headwise.serve.requests import FinishedEvent, GenerationRequest

SEARCHES = (
    DecodeConfig(max_length=6, convention="generate"),
    DecodeConfig(max_length=9, temperature=0.8, seed=3, nbest=2, convention="generate"),
    DecodeConfig(max_length=7, beams=3, convention="generate"),
)


def run_together(trained, texts):
    """The outputs of requests that are in one batcher."""
    tokeniser = trained.tokenisers.source
    batcher = ContinuousBatcher(trained.model, trained.tokenisers.target)
    for number, text in enumerate(texts):
        batcher.submit(number, GenerationRequest(tokeniser.encode(text), SEARCHES[number % len(SEARCHES)]))
    found = {}
    while not batcher.idle:
        found |= {event.key: event for event in batcher.step() if isinstance(event, FinishedEvent)}
    return [[output.ids for output in found[number].hypotheses] for number in range(len(texts))]


def test_requests_to_onnxruntime_get_what_the_model_gives(runs):
    native = headwise.load(runs / "lm")
    texts = ("to be", "or not", "to be", "a question of length", "no", "by a sleep")
    assert run_together(put_on_engine(native, "onnx", 1), texts) == run_together(native, texts)
