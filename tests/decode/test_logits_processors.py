"""Logits processors against plain Python."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headwise.decode.config import NO_TOKEN, DecodeConfig
from headwise.decode.driver import decode
from headwise.decode.logits_processors import forbid_ngrams, penalize_tokens
from headwise.errors import UserError

PASTS = st.lists(st.integers(4, 6), min_size=0, max_size=12)


@settings(deadline=None, max_examples=50)
@given(past=PASTS, size=st.integers(1, 4), padding=st.integers(0, 3))
def test_ngram_blocking_forbids_tokens_that_complete_a_repeated_ngram(past, size, padding):
    grams = [tuple(past[start : start + size]) for start in range(len(past) - size + 1)]
    last = tuple(past[len(past) - size + 1 :]) if len(past) >= size - 1 else None
    banned = [last is not None and (*last, token) in grams for token in range(4, 7)]
    history = torch.tensor([[NO_TOKEN] * padding + past], dtype=torch.long)
    log_probs = forbid_ngrams(torch.zeros(1, 7), history, history, size)
    assert log_probs.isinf()[0, 4:].tolist() == banned and not log_probs[0, :4].any()


@settings(deadline=None, max_examples=30)
@given(past=PASTS, padding=st.integers(0, 3))
def test_the_repetition_penalty_is_applied_once_per_token(past, padding):
    logits = torch.tensor([[9.0, 1.0, -2.0, 0.5, 2.0, -1.0, 0.0]])
    expected = [x if token not in past else x / 2 if x > 0 else x * 2 for token, x in enumerate(logits[0].tolist())]
    assert (
        penalize_tokens(logits, torch.tensor([[NO_TOKEN] * padding + past], dtype=torch.long), 2.0)[0].tolist()
        == expected
    )


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 1000), beams=st.integers(1, 3), size=st.integers(1, 3))
def test_no_output_repeats_an_ngram(table_model, seed, beams, size):
    model = table_model(vocab=30, seed=seed, spread=1.0)
    model.table[:, 2] -= 5  # ends are rare
    (hypotheses,) = decode(
        model, [[3]], DecodeConfig(max_length=15, beams=beams, nbest=beams, no_repeat_ngram_size=size)
    )
    for hypothesis in hypotheses:
        grams = [hypothesis.ids[start : start + size] for start in range(len(hypothesis.ids) - size + 1)]
        assert len(set(grams)) == len(grams)


def test_outputs_have_the_minimum_length_unless_the_maximum_is_smaller(table_model):
    model = table_model(vocab=9)
    model.table[:, 2] += 5  # ends are likely
    sources = [[3], [3] * 10]
    config = DecodeConfig(max_extra=2, min_length=6)
    for way in (config, config.replace(beams=3), config.replace(temperature=1.0)):
        assert [len(nbest[0].ids) for nbest in decode(model, sources, way)] == [3, 6]


def test_a_repetition_penalty_makes_repetitions_rarer(table_model):
    model = table_model(vocab=40, rows=41)
    model.table[:, 2] -= 20  # no end before it is due
    lone, penal = (
        decode(model, [[3], [4], [5]], DecodeConfig(max_length=20, repetition_penalty=penalty)) for penalty in (1, 3)
    )
    distinct = [sum(len(set(nbest[0].ids)) for nbest in outputs) for outputs in (lone, penal)]
    assert distinct[0] < distinct[1]


def test_stop_strings_need_a_tokeniser(table_model):
    with pytest.raises(UserError, match=r"decode\.stop"):
        decode(table_model(), [[3]], DecodeConfig(stop=["a"]))
