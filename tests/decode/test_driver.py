import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from headwise.decode.config import DecodeConfig
from headwise.decode.driver import batch_by_length, choose_threads, decode, decode_batches, stream, use_threads
from headwise.errors import UserError

SEARCHES = [
    DecodeConfig(max_length=8),
    DecodeConfig(max_length=8, beams=3, nbest=2),
    DecodeConfig(max_length=8, temperature=1.2, top_k=4, nbest=2),
    DecodeConfig(max_extra=2, max_ratio=1.5, temperature=1.0, top_p=0.9),
    DecodeConfig(max_extra=2, max_ratio=1.5, min_length=4, no_repeat_ngram_size=2, repetition_penalty=1.3),
]


@settings(deadline=None, max_examples=60)
@given(
    sources=st.lists(st.lists(st.integers(3, 8), max_size=6), min_size=1, max_size=8),
    config=st.sampled_from(SEARCHES),
    tokens_per_batch=st.integers(1, 60),
)
def test_a_source_does_not_depend_on_the_others(table_model, sources, config, tokens_per_batch):
    model = table_model(vocab=9, spread=2.5)
    together = decode(model, sources, config.replace(tokens_per_batch=tokens_per_batch))
    assert together == [decode(model, [source], config)[0] for source in sources]


@pytest.mark.parametrize("config", SEARCHES)
def test_no_output_is_longer_than_its_limit(table_model, config):
    model = table_model(vocab=9, spread=1.0)
    model.table[:, 2] -= 3  # ends are rare
    sources = [[3] * length for length in range(6)]
    outputs = decode(model, sources, config)
    longest = [max(len(hypothesis.ids) for hypothesis in hypotheses) for hypotheses in outputs]
    limits = [config.limit(len(source)) for source in sources]
    assert all(length <= limit for length, limit in zip(longest, limits, strict=True))
    assert any(length == limit for length, limit in zip(longest, limits, strict=True))


@pytest.mark.parametrize("config", [SEARCHES[0], *SEARCHES[3:]])
def test_a_stream_gives_the_same_tokens(table_model, config):
    model = table_model(vocab=9)
    for source in ([], [4], [5, 3, 8]):
        ((hypothesis,),) = decode(model, [source], config)
        assert tuple(stream(model, source, config)) == hypothesis.ids


def test_a_stream_follows_one_hypothesis(table_model):
    with pytest.raises(UserError, match="set beams and nbest to 1"):
        next(stream(table_model(), [3], DecodeConfig(beams=2)))


@pytest.mark.parametrize("config", SEARCHES)
def test_a_diverged_model_is_reported(table_model, config):
    model = table_model(vocab=9)
    model.table.fill_(torch.nan)
    with pytest.raises(UserError, match="training diverged"):
        decode(model, [[3], [4]], config)


def test_settings_that_an_engine_lacks_are_refused():
    class Other:
        def decode(self, sources, config):
            return [[] for _ in sources]

    assert decode(Other(), [[3]]) == [[]]
    assert decode(Other(), [[3]], DecodeConfig(min_length=3)) == [[]]  # which it keeps to itself
    for setting in ({"no_repeat_ngram_size": 2}, {"repetition_penalty": 1.2}, {"stop": ["a"]}):
        with pytest.raises(UserError, match="this engine has no"):
            decode(Other(), [[3]], DecodeConfig(**setting))


def test_no_sources_no_hypotheses(table_model):
    assert decode(table_model(), []) == []


def test_batches_are_yielded_when_they_are_done(table_model):
    model, sources = table_model(), [[3], [4] * 9, [5, 5]]
    config = DecodeConfig(tokens_per_batch=10)
    ready = list(decode_batches(model, sources, config))
    assert [numbers for numbers, _ in ready] == [[1], [2, 0]]
    assert ready[1][1][1] == decode(model, [sources[0]], config)[0]


@given(lengths=st.lists(st.integers(1, 40)), tokens=st.integers(0, 100))
def test_batches_are_bounded_and_contain_each_source_once(lengths, tokens):
    plan = list(batch_by_length(lengths, tokens))
    assert sorted(number for batch in plan for number in batch) == list(range(len(lengths)))
    assert all(len(b) == 1 or len(b) * max(lengths[number] for number in b) <= tokens for b in plan)


def test_model_mode_and_threads_are_restored(table_model):
    model, before = table_model(), torch.get_num_threads()
    model.train()
    modes = []
    step = model.step
    model.step = lambda tokens, state: (modes.append(model.training), step(tokens, state))[1]
    decode(model, [[3]])
    assert modes == [False] * len(modes)
    assert model.training
    with use_threads(before + 1):
        assert torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before


def test_large_steps_use_all_threads():
    cpu = torch.device("cpu")
    small, large = nn.Linear(8, 8), nn.Linear(4096, 4096, device="meta")
    with use_threads(2):
        assert choose_threads(small, 4, cpu) == 1
        assert choose_threads(large, 4, cpu) == 2
        assert choose_threads(small, 10_000_000, cpu) == 2
