import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwise.decode.config import DecodeConfig
from headwise.decode.driver import decode
from headwise.decode.length_penalty import gnmt_length_penalty

END = 2


def by_score(sentences, alpha):
    scored = [(log_prob / gnmt_length_penalty(len(ids) + 1, alpha), ids, log_prob) for ids, log_prob in sentences]
    return sorted(scored, reverse=True)


def plain_beam(model, source, config):
    """Beam search for one source with lists and without early stopping."""
    live, finished = [((), 0.0)], []
    limit = config.limit(len(source))
    for length in range(limit + 1):
        grown = [
            ((*prefix, token), log_prob + gain)
            for prefix, log_prob in live
            for token, gain in model.continuations(prefix, source).items()
            if length < limit or token == END
        ]
        grown = sorted(grown, key=lambda item: -item[1])[: config.beams - len(finished)]
        finished += [(ids[:-1], log_prob) for ids, log_prob in grown if ids[-1] == END]
        live = [(ids, log_prob) for ids, log_prob in grown if ids[-1] != END]
    return by_score(finished, config.length_penalty)[: config.nbest]


@pytest.mark.parametrize("alpha", [0.0, 0.6, 2.0])
def test_a_wide_beam_is_exhaustive_search(table_model, alpha):
    model, source = table_model(vocab=6), [4, 3]
    config = DecodeConfig(beams=400, nbest=25, length_penalty=alpha, max_length=4)
    expected = by_score(model.sentences(source, limit=4), alpha)[:25]
    (hypotheses,) = decode(model, [source], config)
    assert [hypothesis.ids for hypothesis in hypotheses] == [ids for _, ids, _ in expected]
    for hypothesis, (score, _, log_prob) in zip(hypotheses, expected, strict=True):
        assert hypothesis.score == pytest.approx(score, abs=1e-5)
        assert hypothesis.log_prob == pytest.approx(log_prob, abs=1e-5)


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 10_000),
    beams=st.integers(2, 6),
    alpha=st.sampled_from([0.0, 0.6, 1.5]),
    data=st.data(),
)
def test_a_narrow_beam_is_plain_beam_search(table_model, seed, beams, alpha, data):
    nbest = data.draw(st.integers(1, beams))
    config = DecodeConfig(beams=beams, nbest=nbest, length_penalty=alpha, max_length=5)
    model = table_model(seed=seed, vocab=7)
    sources = [[3], [5, 4, 3], [4, 4]]
    for source, outputs in zip(sources, decode(model, sources, config), strict=True):
        expected = plain_beam(model, source, config)
        assert [hypothesis.ids for hypothesis in outputs] == [ids for _, ids, _ in expected]


def test_the_length_penalty_by_hand(markov_model):
    # Nothing at all, or 3 4 5 6 7 of almost the same probability.
    chain = {token: {token + 1: 0.99, END: 0.01} for token in range(3, 7)}
    model = markov_model(8, {1: {END: 0.5, 3: 0.5}, 7: {END: 0.99, 3: 0.01}, **chain})
    plain = decode(model, [[3]], DecodeConfig(beams=2, nbest=2, length_penalty=0))[0]
    assert [hypothesis.ids for hypothesis in plain] == [(), (3, 4, 5, 6, 7)]
    assert plain[0].score == pytest.approx(math.log(0.5))
    penalised = decode(model, [[3]], DecodeConfig(beams=2, nbest=2, length_penalty=0.6))[0]
    assert [hypothesis.ids for hypothesis in penalised] == [(3, 4, 5, 6, 7), ()]
    assert penalised[0].log_prob == pytest.approx(-0.743399)  # ln 0.5 + 5 ln 0.99
    assert penalised[0].score == pytest.approx(-0.516746, abs=1e-5)  # over (11 / 6)^0.6 = 1.438616


def test_n_best_are_sorted_and_distinct(table_model):
    outputs = decode(table_model(), [[3, 4], [5]], DecodeConfig(beams=8, nbest=8, max_length=6))
    for hypotheses in outputs:
        scores = [hypothesis.score for hypothesis in hypotheses]
        assert scores == sorted(scores, reverse=True)
        assert len({hypothesis.ids for hypothesis in hypotheses}) == 8


def test_fewer_sentences_than_nbest(markov_model):
    model = markov_model(5, {1: {END: 0.7, 3: 0.3}, 3: {END: 1.0}})
    (hypotheses,) = decode(model, [[4]], DecodeConfig(beams=6, nbest=6))
    assert [hypothesis.ids for hypothesis in hypotheses] == [(), (3,)]


def test_stops_when_no_live_hypothesis_can_win(markov_model):
    # After three steps the best hypothesis is found; the other could ramble on for 1,000 more.
    chain = {1: {3: 0.9, 5: 0.1}, 3: {4: 0.9, 5: 0.1}, 4: {END: 0.9, 5: 0.1}, 5: {5: 0.999, END: 0.001}}
    model = markov_model(6, chain)
    (hypotheses,) = decode(model, [[3]], DecodeConfig(beams=2, length_penalty=0, max_extra=1000))
    assert hypotheses[0].ids == (3, 4)
    assert len(model.rows_seen) == 3


def test_finished_sources_leave_the_batch(table_model):
    model = table_model(vocab=5, spread=3.0)
    sources = [[3] * length for length in range(1, 9)]
    decode(model, sources, DecodeConfig(beams=3, max_length=30))
    assert model.rows_seen[0] == 24
    assert model.rows_seen == sorted(model.rows_seen, reverse=True)
    assert model.rows_seen[-1] < 24
    assert all(rows % 3 == 0 for rows in model.rows_seen)
