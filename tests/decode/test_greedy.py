import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headwise.decode.beam import beam_search
from headwise.decode.config import DecodeConfig
from headwise.decode.driver import decode
from headwise.decode.generator import Request, topk

END = 2


@pytest.mark.parametrize("source", [[], [3], [4, 5, 3]])
def test_follows_the_most_probable_token(table_model, source):
    model = table_model(vocab=9, seed=3)
    ids, total = [], 0.0
    while True:
        nexts = model.continuations(tuple(ids), source)
        token = max(nexts, key=nexts.get) if len(ids) < 12 else END
        total += nexts[token]
        if token == END:
            break
        ids.append(token)
    ((hypothesis,),) = decode(model, [source], DecodeConfig(max_length=12, length_penalty=0))
    assert hypothesis.ids == tuple(ids)
    assert hypothesis.log_prob == pytest.approx(total, abs=1e-5)


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 10_000), length=st.integers(0, 6))
def test_a_beam_of_one_is_greedy(table_model, seed, length):
    model, source = table_model(seed=seed), [3] * length
    config = DecodeConfig(max_length=9)
    request = Request([source], config, torch.device("cpu"))
    state = model.start(torch.tensor([[*source, END]]))
    ((by_beam,),) = beam_search(model, state, request)
    ((greedy,),) = decode(model, [source], config)
    assert by_beam.ids == greedy.ids
    assert by_beam.score == pytest.approx(greedy.score, abs=1e-5)


def test_padding_and_start_are_never_produced(markov_model):
    model = markov_model(5, {1: {0: 0.5, 1: 0.3, 4: 0.2}, 4: {0: 0.9, END: 0.1}})
    for config in (DecodeConfig(), DecodeConfig(beams=3), DecodeConfig(temperature=1.0)):
        (hypotheses,) = decode(model, [[3]], config)
        assert hypotheses[0].ids == (4,)
        assert hypotheses[0].log_prob == pytest.approx(math.log(0.02))


def test_finished_sources_leave_the_batch(table_model):
    model = table_model(vocab=5, spread=3.0)
    sources = [[3] * length for length in range(1, 9)]
    outputs = decode(model, sources, DecodeConfig(max_length=30))
    lengths = [len(hypotheses[0].ids) + 1 for hypotheses in outputs]
    expected = [sum(length > step for length in lengths) for step in range(max(lengths))]
    assert model.rows_seen == expected
    assert len(set(lengths)) > 2


@pytest.mark.parametrize(
    ("rows", "vocab", "count"), [(3, 300, 1), (3, 20_001, 1), (2, 8192, 3), (1, 100, 5), (4, 4097, 2)]
)
def test_best_is_topk(rows, vocab, count):
    scores = torch.randn(rows, vocab, generator=torch.Generator().manual_seed(vocab))
    scores[0, -1] = 99.0  # in the tail behind the last whole block
    expected = scores.topk(count)
    values, places = topk(scores, count)
    assert torch.equal(values, expected.values)
    assert torch.equal(places, expected.indices)
