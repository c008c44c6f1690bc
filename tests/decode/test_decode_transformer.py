"""The searches on a real model: cached steps, reordered and dropped rows against whole forward passes."""

import pytest
import torch

from headwise.decode.config import DecodeConfig
from headwise.decode.driver import decode, use_threads
from headwise.decode.ensemble import Ensemble
from headwise.models.transformer import TransformerConfig

START, END = 1, 2
SOURCES = [[3, 4, 5], [9], [7, 7, 8, 10, 12], [], [6, 11], [13, 3, 5, 9, 9, 4, 8]]
SEARCHES = [
    DecodeConfig(max_length=10),
    DecodeConfig(max_length=10, beams=4, nbest=3),
    DecodeConfig(max_length=10, temperature=1.0, top_p=0.9, nbest=3),
]


@pytest.fixture(scope="module")
def transformer():
    torch.manual_seed(5)
    small = {"depth": 2}
    config = TransformerConfig(width=32, heads=4, encoder=small, decoder=small)
    with use_threads(1):  # the steps are tiny
        yield config.build(16).eval()


def log_prob(model, source, ids):
    with torch.no_grad():
        logits = model(torch.tensor([[*source, END]]), torch.tensor([[START, *ids]]))
    steps = logits[0].log_softmax(-1)
    return float(steps[range(len(ids) + 1), [*ids, END]].sum())


@pytest.mark.parametrize("config", SEARCHES, ids=lambda config: config.search)
def test_log_probs_are_those_of_the_whole_pass(transformer, config):
    outputs = decode(transformer, SOURCES, config)
    for source, hypotheses in zip(SOURCES, outputs, strict=True):
        assert len(hypotheses) == config.nbest
        for hypothesis in hypotheses:
            assert hypothesis.log_prob == pytest.approx(log_prob(transformer, source, hypothesis.ids), abs=1e-4)


@pytest.mark.parametrize("config", SEARCHES, ids=lambda config: config.search)
def test_a_source_does_not_depend_on_the_others(transformer, config):
    together = decode(transformer, SOURCES, config)
    for source, hypotheses in zip(SOURCES, together, strict=True):
        (alone,) = decode(transformer, [source], config)
        assert [hypothesis.ids for hypothesis in hypotheses] == [hypothesis.ids for hypothesis in alone]


def test_an_ensemble_of_transformers(transformer):
    config = SEARCHES[1]
    twice = decode(Ensemble([transformer, transformer]), SOURCES, config)
    once = decode(transformer, SOURCES, config)
    assert [[h.ids for h in nbest] for nbest in twice] == [[h.ids for h in nbest] for nbest in once]
