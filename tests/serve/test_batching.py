"""Continuous batching: whatever else joins and leaves, each request gets what it gets alone."""

from __future__ import annotations

import random
from collections import defaultdict
from functools import cache

import pytest
import torch

import headwise
from headwise.decode.config import DecodeConfig
from headwise.decode.driver import decode, stream, use_threads
from headwise.decode.ensemble import Ensemble
from headwise.errors import UserError
from headwise.models.ngram import NgramConfig
from headwise.serve.batching import ContinuousBatcher
from headwise.serve.requests import PROMPT, FailedEvent, FinishedEvent, GenerationRequest, TokenEvent
from headwise.text import BOS, EOS
from headwise.text.vocabulary import Characters

LETTERS = Characters("abcdefghijklmnopqrst")
VOCAB = 24
SCHEDULES, REQUESTS = 20, 10  # schedules of each model, requests of each schedule
LANGUAGE_MODEL_SEARCHES = [
    DecodeConfig(max_length=9),
    DecodeConfig(max_length=5, max_total_length=30, eos_token_ids=(9,)),
    DecodeConfig(max_length=9, temperature=0.8, seed=3, nbest=2),
    DecodeConfig(max_length=12, temperature=1.2, top_k=7, top_p=0.9, seed=8),
    DecodeConfig(max_length=9, temperature=0.8, typical_p=0.9, convention="generate", min_total_length=9),
    DecodeConfig(max_length=9, beams=3, nbest=2),
    DecodeConfig(max_length=14, beams=3, nbest=3, early_stopping=False, length_penalty=1.2),
    DecodeConfig(max_length=6, beams=2, convention="generate", early_stopping=True, no_repeat_ngram_size=2),
    DecodeConfig(max_length=12, repetition_penalty=1.3, no_repeat_ngram_size=2, min_length=4),
    DecodeConfig(max_length=12, stop=("ab", "k", "tt"), suppress_tokens=(7,), begin_suppress_tokens=(5, 6)),
    DecodeConfig(max_length=8, convention="generate", forced_bos_token_id=6, forced_eos_token_id=2, marked=False),
]
ENCODER_DECODER_SEARCHES = [
    *LANGUAGE_MODEL_SEARCHES[:9],
    DecodeConfig(max_length=8, beams=3, coverage_penalty=0.2),
    DecodeConfig(max_length=8, encoder_no_repeat_ngram_size=1, encoder_repetition_penalty=1.2),
]


def build_language_model(name="gpt", **settings):
    return headwise.build(f"{name}-tiny", vocab=VOCAB, task="language-model", **settings)


def build_encoder_decoder(name, **settings):
    return headwise.build(f"{name}-tiny", vocab=VOCAB, task="transduce", **settings)


def build_ngram():
    lines = torch.randint(3, VOCAB, (40, 12), generator=torch.Generator().manual_seed(1)).tolist()
    return NgramConfig(order=3).build(VOCAB).fit(lines)


MODELS = {
    "gpt": build_language_model,
    "grouped queries, rotary": lambda: build_language_model("llama", key_value_heads=1),
    "t5 positions": lambda: build_language_model("transformer", positions="t5"),
    "linear attention": lambda: build_language_model("transformer", mixer="linear"),
    "retention": lambda: build_language_model("retnet"),
    "lstm": lambda: build_language_model("lstm"),
    "segments": lambda: build_language_model("transformer-xl", memory_length=5),
    "does not join": lambda: build_language_model("transformer", mixer="compressed"),
    "encoder-decoder": lambda: build_encoder_decoder("transformer"),
    "recurrent encoder-decoder": lambda: build_encoder_decoder("luong"),
}


@cache
def build_model(name, dtype=torch.float64):
    torch.manual_seed(3)
    model = MODELS[name]().to(dtype).eval().requires_grad_(False)
    model.decoder.head.table.weight *= 3  # so that what it writes depends on what it read
    return model


@cache
def draw_requests(name):
    """Requests of a model, and what each of them gets alone."""
    model, rng = build_model(name), random.Random(5)
    searches = LANGUAGE_MODEL_SEARCHES if model.continues_prompt else ENCODER_DECODER_SEARCHES
    if name == "does not join":  # compressed attention has no steps of beams in batches
        searches = [*searches, DecodeConfig(max_length=20, context=12)]
    texts = [tuple(rng.choices(range(4, VOCAB), k=length)) for length in (0, 1, 3, 7, 18, 33)]
    texts += [texts[-1][:17] + texts[-2], texts[-1][:25]]  # which share prefixes
    requests = []
    for text in texts:
        for config in rng.sample(searches, 4):
            if not config.marked and not text:
                continue
            requests.append(GenerationRequest(text, config, top_logprobs=rng.choice((0, 0, 3))))
    return [(request, decode(model, [request.source], request.config, tokeniser=LETTERS)[0]) for request in requests]


@pytest.fixture(autouse=True)
def one_thread():
    with use_threads(1):
        yield


def run_all(batcher, requests):
    """Submit all requests at once; returns their events by key."""
    for key, request in enumerate(requests):
        batcher.submit(key, request)
    return collect(batcher)


def collect(batcher):
    events = defaultdict(list)
    while not batcher.idle:
        for event in batcher.step():
            events[event.key].append(event)
    return events


def check_events(events, request, expected):
    """The events of a request are those of what it gets alone."""
    *tokens, last = events
    assert isinstance(last, FinishedEvent), last
    assert [hypothesis.ids for hypothesis in last.hypotheses] == [hypothesis.ids for hypothesis in expected]
    for ours, theirs in zip(last.hypotheses, expected, strict=True):
        assert ours.log_prob == pytest.approx(theirs.log_prob, abs=1e-4)
        assert ours.score == pytest.approx(theirs.score, abs=1e-4)
    assert last.completion_tokens == sum(len(hypothesis.ids) for hypothesis in expected)
    assert last.prompt_tokens == len(request.source)
    if request.config.beams > 1:
        assert not tokens
        return
    for output, hypothesis in zip(last.outputs, last.hypotheses, strict=True):
        written = [event for event in tokens if event.output == output]
        assert tuple(event.token for event in written) == hypothesis.ids
        for event in written:
            assert len(event.top) <= request.top_logprobs
            assert all(value <= event.top[0][1] for _, value in event.top)


@pytest.mark.parametrize("name", MODELS)
def test_random_schedules_give_each_request_what_it_gets_alone(name):
    """Requests are submitted and cancelled at any step; rows, tokens and chunks are scarce."""
    pool = draw_requests(name)
    reused = 0
    for seed in range(SCHEDULES):
        rng = random.Random(seed)
        batcher = ContinuousBatcher(
            build_model(name),
            LETTERS,
            max_rows=rng.choice((3, 5, 12)),
            max_tokens=rng.choice((200, 500, 4000)),
            prefill_tokens=rng.choice((4, 16, 512)),
            prefix_tokens=rng.choice((0, 40, 400)),
        )
        chosen = [rng.choice(pool) for _ in range(REQUESTS)]
        submitted, cancelled, events = 0, set(), defaultdict(list)
        while submitted < REQUESTS or not batcher.idle:
            while submitted < REQUESTS and rng.random() < 0.4:
                batcher.submit(submitted, chosen[submitted][0])
                submitted += 1
            if submitted and rng.random() < 0.03:
                key = rng.randrange(submitted)
                batcher.cancel(key)
                if not events[key] or isinstance(events[key][-1], TokenEvent):
                    cancelled.add(key)
            for event in batcher.step():
                assert event.key not in cancelled
                events[event.key].append(event)
            assert 0 <= batcher.live_rows <= batcher.max_rows
            assert batcher.cached_tokens <= batcher.max_tokens + batcher.prefixes.max_tokens
        assert batcher.live_rows == batcher.waiting == 0
        for key in set(range(REQUESTS)) - cancelled:
            check_events(events[key], *chosen[key])
        reused += batcher.prefixes.reused_tokens
    assert reused or name == "does not join"


@pytest.mark.parametrize("build", [build_ngram, lambda: Ensemble([build_model("gpt"), build_model("lstm")])])
def test_any_generator_is_batched(build):
    model = build()
    requests = [
        GenerationRequest([4, 5, 6][:length], config)
        for length in range(4)
        for config in (LANGUAGE_MODEL_SEARCHES[index] for index in (0, 2, 5, 9))
    ]
    events = run_all(ContinuousBatcher(model, LETTERS), requests)
    for key, request in enumerate(requests):
        check_events(events[key], request, decode(model, [request.source], request.config, tokeniser=LETTERS)[0])


def test_images_are_captioned_together():
    model = headwise.build("show-attend-tell-tiny", outputs=VOCAB, task="caption").double().eval().requires_grad_(False)
    images = torch.rand(3, 1, 32, 32, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    images = [*images, images[0, :, :, :24]]  # of another size
    requests = [
        GenerationRequest(image, DecodeConfig(max_length=6, beams=beams)) for image in images for beams in (1, 2)
    ]
    batcher = ContinuousBatcher(model)
    events = run_all(batcher, requests)
    for key, request in enumerate(requests):
        ids = [hypothesis.ids for hypothesis in decode(model, [request.source], request.config)[0]]
        assert [hypothesis.ids for hypothesis in events[key][-1].hypotheses] == ids
    assert batcher.idle and not batcher.lanes


@pytest.mark.parametrize("name", ["gpt", "grouped queries, rotary", "retention", "lstm", "t5 positions"])
@torch.no_grad()
def test_log_probabilities_are_those_of_a_full_pass_in_float32(name):
    model = build_model(name, torch.float32)
    texts = [[4, 5, 6, 7, 8, 9] * 4, [10, 11], [], [12] * 9, [13, 4, 6, 8]]
    config = DecodeConfig(max_length=12, min_length=12, convention="generate")
    requests = [GenerationRequest(text, config, top_logprobs=VOCAB, echo_logprobs=True) for text in texts]
    events = run_all(ContinuousBatcher(model, max_rows=4, prefill_tokens=7), requests)
    for key, text in enumerate(texts):
        tokens = events[key][:-1]
        assert [event.output for event in tokens] == [PROMPT] * len(text) + [0] * 12
        ids = [event.token for event in tokens]
        assert ids[: len(text)] == text
        full = model(torch.tensor([[BOS, *ids]]))[0].log_softmax(-1)
        for place, event in enumerate(tokens):
            expected = full[place]
            assert event.log_prob == pytest.approx(float(expected[event.token]), abs=2e-5)
            values = torch.full((VOCAB,), -torch.inf)
            for token, value in event.top:
                values[token] = value
            if place >= len(text):
                expected = expected.clone()
                expected[EOS] = -torch.inf  # before the minimum length
            torch.testing.assert_close(values, expected, rtol=0, atol=2e-5)


def test_the_prompt_of_a_model_that_does_not_join_is_scored_too():
    model = build_model("does not join", torch.float32)
    request = GenerationRequest([4, 5, 6, 7], DecodeConfig(max_length=2), echo_logprobs=True)
    tokens = run_all(ContinuousBatcher(model), [request])[0][:4]
    full = model(torch.tensor([[BOS, 4, 5, 6, 7]]))[0].log_softmax(-1)
    assert [event.token for event in tokens] == [4, 5, 6, 7]
    for place, event in enumerate(tokens):
        assert event.output == PROMPT and event.log_prob == pytest.approx(float(full[place, event.token]), abs=2e-5)


def test_samples_follow_their_seed_whatever_their_neighbours():
    model, text = build_model("gpt"), [4, 5, 6]
    config = DecodeConfig(max_length=10, temperature=1.0, seed=11)
    alone = tuple(stream(model, text, config))
    others = [GenerationRequest(text, config.replace(seed=seed, temperature=1 + seed / 10)) for seed in range(6)]
    events = run_all(ContinuousBatcher(model), [*others[:3], GenerationRequest(text, config), *others[3:]])
    assert events[3][-1].hypotheses[0].ids == alone
    assert len({events[key][-1].hypotheses[0].ids for key in range(7)}) > 3


def count_read_tokens(model, counts):
    """Append the tokens of every prompt, or chunk of one, that the model reads."""
    return model.decoder.embed.register_forward_hook(lambda module, inputs, outputs: counts.append(inputs[0].numel()))


def test_long_prompts_are_read_in_chunks_while_others_write():
    model, counts = build_model("gpt"), []
    batcher = ContinuousBatcher(model, prefill_tokens=8, prefix_tokens=0)
    batcher.submit("short", GenerationRequest([4], DecodeConfig(max_length=20, min_length=20)))
    written = sum(isinstance(event, TokenEvent) for event in batcher.step())
    batcher.submit("long", GenerationRequest([5] * 49, DecodeConfig(max_length=3)))
    with count_read_tokens(model, counts) as _:
        for _ in range(6):
            counts.clear()
            written += sum(event.key == "short" for event in batcher.step())
            assert sum(counts) <= 8
    assert written == 7
    assert {event.key for event in batcher.step()} == {"short", "long"}  # 49 tokens after BOS in 7 chunks


def test_equal_prompts_and_common_prefixes_are_read_once():
    model, counts = build_model("grouped queries, rotary"), []
    batcher = ContinuousBatcher(model, prefix_tokens=100)
    text, config = list(range(4, 24)) * 2, DecodeConfig(max_length=3, min_length=3)
    with count_read_tokens(model, counts):
        for source in (text, text, [*text[:30], 5, 5, 5]):
            run_all(batcher, [GenerationRequest(source, config)])
    # 40 tokens after BOS, of which the last is the input of the first step; 33, of which 31 are known
    assert counts == [40, 2]
    assert batcher.prefixes.hits == 2 and batcher.prefixes.reused_tokens == 71
    assert batcher.prefixes.tokens == 44 + 37  # each with its last token and the output
    run_all(batcher, [GenerationRequest([9, *text], config)])  # the least recently used one goes
    assert batcher.prefixes.tokens == 37 + 45 and len(batcher.prefixes.states) == 2


@pytest.mark.parametrize("convention", ["headwise", "generate"])
def test_of_a_chat_only_the_new_message_is_read(convention):
    model, counts, text = build_model("gpt"), [], list(range(4, 24))
    batcher, config = ContinuousBatcher(model), DecodeConfig(max_length=6, min_length=6, convention=convention)
    with count_read_tokens(model, counts):
        for _ in range(4):
            counts.clear()
            request = GenerationRequest(text, config)
            events = run_all(batcher, [request])[0]
            check_events(events, request, decode(model, [text], config)[0])
            known = counts[0] if counts else 0
            text = [*text, *events[-1].hypotheses[0].ids, 5, 6]
    # the last output of convention "generate" was not an input; the last token is the input of the first step
    assert known == (1 if convention == "headwise" else 2)


def test_equal_sources_are_encoded_once():
    model, counts = build_model("encoder-decoder"), []
    batcher, request = ContinuousBatcher(model), GenerationRequest(list(range(4, 24)), DecodeConfig(max_length=3))
    with model.encoder.register_forward_hook(lambda module, inputs, outputs: counts.append(len(inputs[0]))):
        events = [run_all(batcher, [request, request])[0], run_all(batcher, [request])[0]]
    assert counts == [2]
    assert events[0] == events[1]


def test_what_can_never_run_is_refused():
    batcher = ContinuousBatcher(build_model("gpt"), max_rows=4, max_tokens=60)
    refused = {
        "5 rows do not fit into a batch of 4; ask for fewer": GenerationRequest([4], DecodeConfig(beams=5)),
        "needs 64 tokens of cache, and there are 60; shorten": GenerationRequest([4] * 13, DecodeConfig()),
        "source: the model has no token 24; ids are from 0 to 23": GenerationRequest([4, 24]),
        "top_logprobs: 30 is not between 0 and the 24": GenerationRequest([4], top_logprobs=30),
        "is too long: this model has": GenerationRequest([4] * 5000, DecodeConfig(max_length=1)),
        "decode.suppress_tokens: the model has no token 99": GenerationRequest(
            [4], DecodeConfig(suppress_tokens=(99,))
        ),
        "stop strings need the tokeniser": GenerationRequest([4], DecodeConfig(stop=("a",))),
        "decode.max_total_length: 2 leaves no room": GenerationRequest([4] * 5, DecodeConfig(max_total_length=2)),
        "decode.coverage_penalty: needs the attention": GenerationRequest(
            [4], DecodeConfig(beams=2, coverage_penalty=1.0)
        ),
    }
    for message, request in refused.items():
        with pytest.raises(UserError, match=message):
            batcher.submit("key", request)
    assert batcher.idle and not batcher.step()
    batcher.submit("key", GenerationRequest([4]))
    with pytest.raises(UserError, match="request 'key': it is running already"):
        batcher.submit("key", GenerationRequest([4]))
    with pytest.raises(UserError, match="echo_logprobs: only a language model"):
        ContinuousBatcher(build_model("encoder-decoder")).submit("key", GenerationRequest([4], echo_logprobs=True))


@pytest.mark.parametrize(
    "config", [DecodeConfig(), DecodeConfig(temperature=1.0), DecodeConfig(beams=2)], ids=lambda config: config.search
)
def test_damaged_weights_fail_a_request_and_not_the_batcher(config):
    torch.manual_seed(0)
    model = build_language_model()
    model.decoder.stack.layers[0].parts[0].out.weight.data.fill_(torch.nan)
    batcher = ContinuousBatcher(model)
    for _ in range(2):
        (event,) = (
            event
            for event in run_all(batcher, [GenerationRequest([4, 5], config)])[0]
            if event.key == 0 and not isinstance(event, TokenEvent)
        )
        assert isinstance(event, FailedEvent) and "No output of the model has a finite probability" in event.message
    assert batcher.live_rows == 0


def test_rows_of_cancelled_requests_are_free():
    batcher = ContinuousBatcher(build_model("encoder-decoder"), max_rows=3)
    for key in range(3):
        batcher.submit(key, GenerationRequest([4, 5, 6], DecodeConfig(max_length=30, min_length=30)))
    batcher.step()
    batcher.submit(3, GenerationRequest([7], DecodeConfig(max_length=2)))
    batcher.step()
    assert (batcher.live_rows, batcher.free_rows, batcher.waiting) == (3, 0, 1)
    batcher.cancel(1)
    batcher.cancel("unknown")
    assert (batcher.live_rows, batcher.free_rows) == (2, 1)
    assert {event.key for event in batcher.step()} == {0, 2, 3}


def test_reasons_tell_stop_from_length():
    model = build_model("gpt")
    free = decode(model, [[4, 5, 6]], DecodeConfig(max_length=8, min_length=8))[0][0].ids
    stop = LETTERS.decode([free[3]])
    configs = {
        "length": DecodeConfig(max_length=8, min_length=8),
        "stop": DecodeConfig(max_length=8, min_length=2, stop=(stop,)),
    }
    for reason, config in configs.items():
        events = run_all(ContinuousBatcher(model, LETTERS), [GenerationRequest([4, 5, 6], config)])
        assert events[0][-1].reasons == (reason,)


def test_a_prompt_that_fails_does_not_stop_the_others():
    """Positions run out in the middle of a step: a mistake of the model's, which no check at the door can know."""
    model = headwise.build("gpt-tiny", vocab=VOCAB, task="language-model").eval().requires_grad_(False)
    short = ContinuousBatcher(model, prefill_tokens=8, prefix_tokens=0)
    short.submit("good", GenerationRequest([4, 5], DecodeConfig(max_length=12, min_length=12)))
    short.step()
    table = model.decoder.embed.positions
    broken = next(parameter for parameter in table.parameters())
    with torch.no_grad():
        broken.set_(broken[:30].clone())
    short.submit("bad", GenerationRequest([4] * 60, DecodeConfig(max_length=2)))
    events = collect(short)
    assert isinstance(events["bad"][-1], FailedEvent) and events["bad"][-1].message.startswith("decoding failed: ")
    assert isinstance(events["good"][-1], FinishedEvent) and short.live_rows == 0
