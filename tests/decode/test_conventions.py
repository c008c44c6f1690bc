"""The convention of `generate`, against plain Python; and what the two conventions do at the same settings."""

import math
import tomllib

import pytest
import tomli_w
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headwise.config.base import validate
from headwise.decode.config import DecodeConfig
from headwise.decode.driver import decode, stream
from headwise.decode.generation_config import from_generation_config
from headwise.decode.sample import next_token_probabilities, truncate
from headwise.errors import UserError

END = 2
EARLY_STOPPING = [True, False, "never"]


def all_continuations(model, prefix, source):
    """log P of every token, PAD and BOS included."""
    named = model.continuations(prefix, source)
    state = model.start(torch.tensor([[*source, END]]))
    for token in (1, *prefix):
        logits, state = model.step(torch.tensor([token]), state)
    log_probs = logits[0].double().log_softmax(-1).tolist()
    assert all(abs(log_probs[token] - value) < 1e-5 for token, value in named.items())
    return dict(enumerate(log_probs))


def pooled_beam(model, source, config):
    """Beam search with a pool of finished hypotheses, for one source, with lists."""
    beams, alpha, limit = config.beams, config.length_penalty, config.limit(len(source))
    live, pool = [((), 0.0)], []
    for length in range(1, limit + 1):
        grown = [
            ((*prefix, token), log_prob + gain)
            for prefix, log_prob in live
            for token, gain in all_continuations(model, prefix, source).items()
        ]
        grown = sorted(grown, key=lambda item: -item[1])[: 2 * beams]
        ends = [item[0][-1] == END or length == limit for item in grown]
        pool += [
            (log_prob / length**alpha, ids) for (ids, log_prob), end in zip(grown[:beams], ends, strict=False) if end
        ]
        pool = sorted(pool, reverse=True)[:beams]
        live = [item for item, end in zip(grown, ends, strict=True) if not end][:beams]
        full = len(pool) == beams
        if not live or (full and config.early_stopping is True):
            break
        longest = limit if config.early_stopping == "never" and alpha > 0 else length
        if full and live[0][1] / longest**alpha <= pool[-1][0]:
            break
    return [ids[:-1] if ids[-1] == END else ids for _, ids in pool[: config.nbest]]


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 10_000),
    beams=st.integers(2, 4),
    alpha=st.sampled_from([-1.0, 0.0, 0.6, 1.0, 2.0]),
    early_stopping=st.sampled_from(EARLY_STOPPING),
)
def test_the_search_of_generate_is_beam_search_with_a_pool(table_model, seed, beams, alpha, early_stopping):
    model = table_model(seed=seed, vocab=9)
    model.table[:, END] += 1  # so that hypotheses end at different lengths
    config = DecodeConfig(
        beams=beams,
        nbest=beams,
        convention="generate",
        length_penalty=alpha,
        early_stopping=early_stopping,
        max_length=6,
    )
    sources = [[3], [5, 4, 3], [4, 4]]
    for source, nbest in zip(sources, decode(model, sources, config), strict=True):
        assert [hypothesis.ids for hypothesis in nbest] == pooled_beam(model, source, config)


def test_the_three_meanings_of_early_stopping(markov_model):
    """The empty output and 3 fill the pool. The mean log P of 4 5 is better, of 4 5 6 worse, of 4 5 6 6 6 ... best."""
    chain = {
        1: {END: 0.5, 3: 0.24, 4: 0.26},
        3: {END: 0.9, 4: 0.1},
        4: {5: 0.99, END: 0.01},
        5: {6: 0.31, 7: 0.3, 8: 0.29, 9: 0.1},
        **{token: {token: 0.999, END: 0.001} for token in (6, 7, 8)},
    }
    model = markov_model(10, chain)
    found = {}
    for early_stopping in EARLY_STOPPING:
        model.rows_seen.clear()
        config = DecodeConfig(
            beams=2, convention="generate", length_penalty=1.0, early_stopping=early_stopping, max_extra=30, max_ratio=0
        )
        ((hypothesis,),) = decode(model, [[3]], config)
        found[early_stopping] = (hypothesis.ids, len(model.rows_seen))
    assert found[True] == ((), 2)
    assert found[False] == ((), 3)
    assert found["never"] == ((4, 5, *[6] * 28), 30)  # cut at the maximum length


def test_outputs_are_cut_at_the_maximum_length_without_eos(markov_model):
    model = markov_model(6, {1: {3: 1.0}, 3: {3: 0.9, END: 0.1}})
    for settings_ in ({}, {"beams": 2}, {"temperature": 1e-3}):
        config = DecodeConfig(convention="generate", length_penalty=1.0, max_length=4, **settings_)
        ((hypothesis,),) = decode(model, [[4]], config)
        assert hypothesis.ids == (3, 3, 3, 3)
        assert hypothesis.log_prob == pytest.approx(3 * math.log(0.9), abs=1e-5)
        assert hypothesis.score == pytest.approx(3 * math.log(0.9) / 4, abs=1e-5)
        ours = decode(model, [[4]], config.replace(convention="headwise"))[0][0]
        assert ours.log_prob == pytest.approx(3 * math.log(0.9) + math.log(0.1), abs=1e-5)
    assert tuple(stream(model, [4], DecodeConfig(convention="generate", max_length=4))) == (3, 3, 3, 3)


def test_pad_and_bos_are_generated_by_the_convention_of_generate(markov_model):
    model = markov_model(5, {1: {0: 0.6, 3: 0.4}, 0: {1: 0.9, END: 0.1}})
    (ours,), (theirs,) = (
        decode(model, [[3]], DecodeConfig(convention=convention, max_length=2))
        for convention in ("headwise", "generate")
    )
    assert ours[0].ids == (3,) and theirs[0].ids == (0, 1)


def test_our_beam_search_stops_early_too(markov_model):
    chain = {
        1: {3: 0.6, 4: 0.4},
        3: {END: 0.55, 5: 0.45},
        4: {6: 0.9, 5: 0.1},
        6: {7: 0.55, 8: 0.45},
        **{token: {token: 0.999, END: 0.001} for token in (7, 8)},
    }
    model = markov_model(10, chain)
    steps = {}
    for early_stopping in EARLY_STOPPING:
        model.rows_seen.clear()
        decode(model, [[3]], DecodeConfig(beams=2, length_penalty=1.0, early_stopping=early_stopping, max_extra=50))
        steps[early_stopping] = len(model.rows_seen)
    assert steps[True] == 2 and steps[False] == 3 and steps["never"] > 50


@pytest.mark.parametrize("convention", ["headwise", "generate"])
@pytest.mark.parametrize("search", [{}, {"beams": 3}, {"temperature": 1.0}])
def test_forced_suppressed_and_further_end_tokens(table_model, convention, search):
    model = table_model(vocab=12)
    base = {"convention": convention, "max_length": 6, "min_length": 2, **search}

    def first(**more):
        return decode(model, [[3], [5, 4]], DecodeConfig(**base, **more))

    assert all(nbest[0].ids[0] == 7 for nbest in first(forced_bos_token_id=7))
    plain = {token for nbest in first() for token in nbest[0].ids}
    assert plain & {3, 4, 5, 6} and not {token for n in first(suppress_tokens=[3, 4, 5, 6]) for token in n[0].ids} & {
        3,
        4,
        5,
        6,
    }
    begins = [nbest[0].ids[0] for nbest in first()]
    assert not {nbest[0].ids[0] for nbest in first(begin_suppress_tokens=begins)} & set(begins)
    pairs = [nbest[0].ids[:2] for nbest in first()]
    assert not {nbest[0].ids[:2] for nbest in first(bad_words_ids=pairs)} & set(pairs)
    ended = first(eos_token_ids=[8, 9], max_total_length=20)
    assert not any(token in (8, 9) for nbest in ended for token in nbest[0].ids)
    assert all(len(nbest[0].ids) >= 2 for nbest in ended)
    assert all(nbest[0].ids[-1] == 10 for nbest in first(forced_eos_token_id=10, min_total_length=20))


def test_total_lengths_count_bos_and_prompt(table_model):
    model = table_model(vocab=9)
    model.table[:, END] -= 20
    assert [len(n[0].ids) for n in decode(model, [[3], [5, 4]], DecodeConfig(max_total_length=5))] == [4, 4]
    model.table[:, END] += 40
    assert [len(n[0].ids) for n in decode(model, [[3]], DecodeConfig(min_total_length=5))] == [4]
    with pytest.raises(UserError, match=r"decode\.max_total_length: 1 leaves no room"):
        decode(model, [[3]], DecodeConfig(max_total_length=1))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"suppress_tokens": [9]}, "decode.suppress_tokens: the model has no token 9; choose ids from 0 to 8"),
        ({"bad_words_ids": [[3, 40]]}, "decode.bad_words_ids: the model has no token 40"),
        ({"forced_bos_token_id": 9}, "decode.forced_bos_token_id: the model has no token 9"),
        ({"suppress_tokens": [END]}, "decode.suppress_tokens: EOS cannot be suppressed"),
    ],
)
def test_tokens_that_the_model_does_not_have_are_refused(table_model, config, message):
    with pytest.raises(UserError, match=message.replace(".", r"\.")):
        decode(table_model(vocab=9), [[3]], DecodeConfig(**config))


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 1000), min_p=st.sampled_from([0.0, 0.05, 0.5]), typical_p=st.sampled_from([0.2, 0.7, 1.0]))
def test_min_p_and_typical_sampling_by_definition(seed, min_p, typical_p):
    log_probs = torch.randn(1, 12, generator=torch.Generator().manual_seed(seed)).mul(2).log_softmax(-1)
    p = dict(enumerate(log_probs[0].double().exp().tolist()))
    p = {token: value for token, value in p.items() if value >= min_p * max(p.values())}
    p = {token: value / sum(p.values()) for token, value in p.items()}
    if typical_p < 1:
        entropy = -sum(value * math.log(value) for value in p.values())
        kept, mass = {}, 0.0
        for token in sorted(p, key=lambda token: abs(-math.log(p[token]) - entropy)):
            if mass >= typical_p:
                break
            kept[token], mass = p[token], mass + p[token]
        p = {token: value / mass for token, value in kept.items()}
    actual = next_token_probabilities(log_probs, DecodeConfig(temperature=1.0, min_p=min_p, typical_p=typical_p))[0]
    assert actual.tolist() == pytest.approx([p.get(token, 0.0) for token in range(12)], abs=1e-6)
    assert truncate(log_probs, 1.0)[1].tolist() == [list(range(12))]  # no truncation: no sorting


def test_a_generation_config_becomes_settings():
    theirs = {
        "do_sample": True, "temperature": 0.7, "top_k": None, "max_length": 50, "min_length": 3, "use_cache": True,
        "eos_token_id": [6, 5, 7], "bad_words_ids": [[4], [8, 6]], "stop_strings": "\n", "num_beam_groups": 1,
    }  # fmt: skip
    ours = from_generation_config(theirs, lambda token: END if token == 5 else token + 10)
    config = validate(DecodeConfig, ours)
    assert (config.search, config.temperature, config.top_k) == ("sample", 0.7, 50)
    assert (config.max_total_length, config.min_total_length, config.stop) == (50, 3, ("\n",))
    assert config.eos_token_ids == (16, 17) and config.bad_words_ids == ((14,), (18, 16))
    newer = from_generation_config({**theirs, "max_new_tokens": 8, "min_new_tokens": 2})
    config = validate(DecodeConfig, newer)
    assert (config.limit(100), config.min_length) == (8, 2)
    assert not config.max_total_length and not config.min_total_length


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"guidance_scale": 1.5}, "generation_config.json: guidance_scale: 1.5 is not supported; remove it"),
        ({"num_beam_groups": 2}, "num_beam_groups: 2 is not supported"),
        ({"forced_eos_token_id": [1, 2]}, "forced_eos_token_id: a list is not supported"),
    ],
)
def test_generation_settings_that_would_change_outputs_are_refused(values, message):
    with pytest.raises(UserError, match=message):
        from_generation_config(values)


@pytest.mark.parametrize(
    "config",
    [
        DecodeConfig(),
        DecodeConfig(
            convention="generate", beams=4, early_stopping=False, bad_words_ids=[[3], [4, 5]], eos_token_ids=[7]
        ),
        DecodeConfig(forced_bos_token_id=5, early_stopping=True, temperature=1.0, min_p=0.1, typical_p=0.9),
    ],
)
def test_settings_survive_a_file(config):
    table = tomllib.loads(tomli_w.dumps(config.model_dump(mode="json")))
    assert validate(DecodeConfig, table) == config
