"""Prompts of different lengths in one batch: what each gets is what it gets alone."""

from copy import deepcopy
from functools import cache

import pytest
import torch

import headwise
from headwise.blocks.cache import DecodingCache
from headwise.blocks.record import record
from headwise.blocks.residual import PreNorm
from headwise.blocks.stream import Part, Properties
from headwise.catalog import CATALOG
from headwise.decode.config import DecodeConfig
from headwise.decode.driver import decode, decode_batches, use_threads
from headwise.decode.ensemble import Ensemble
from headwise.models.language_model import LanguageModel
from headwise.models.ngram import NgramConfig
from headwise.text import BOS, PAD

VOCAB = 24
PROMPTS = [[5, 6, 7], [9], [], [7, 7, 8, 10, 12, 15, 4, 4, 9], [6, 11], [13, 3, 5, 9, 9, 4, 8], [20]]
SEARCHES = [
    DecodeConfig(max_length=8),
    DecodeConfig(max_length=6, beams=3, nbest=2),
    DecodeConfig(max_length=8, temperature=1.0, top_p=0.95, nbest=2),
    DecodeConfig(max_length=8, repetition_penalty=1.4, no_repeat_ngram_size=2, min_length=5),
]
POSITIONS = ["sinusoid", {"kind": "learned", "max_length": 24}, "rotary", "alibi", "t5", "shaw"]
RECURRENT = ["lstm", "gru", "rnn"]


def transformer(positions, **settings):
    return headwise.build(
        "transformer-tiny", vocab=VOCAB, task="language-model", positions=positions, tie="none", **settings
    )


def recurrent(name, **settings):
    return headwise.build(f"{name}-tiny", vocab=VOCAB, task="language-model", tie="none", **settings)


def build_ngram():
    lines = torch.randint(3, VOCAB, (40, 12), generator=torch.Generator().manual_seed(1)).tolist()
    return NgramConfig(order=3).build(VOCAB).fit([*lines, *PROMPTS])


FAMILIES = {
    **{str(positions): lambda positions=positions: transformer(positions) for positions in POSITIONS},
    "pre-norm": lambda: transformer("sinusoid", wiring="pre"),
    "shared-keys": lambda: transformer("rotary", decoder={"depth": 1, "layers": [[{"key_value_heads": 1}, "mlp"]]}),
    "written-out": lambda: transformer("rotary", decoder={"depth": 1, "layers": [[{"kernel": "plain"}, "mlp"]]}),
    "linear": lambda: transformer("sinusoid", mixer="linear"),
    "performer": lambda: transformer("rotary", mixer={"kind": "performer", "features": 8}),
    **{name: lambda name=name: recurrent(name) for name in RECURRENT},
    "lstm-pre": lambda: recurrent("lstm", wiring="pre"),
    "ngram": build_ngram,
}


@cache
def build_model(family):
    torch.manual_seed(3)
    model = FAMILIES[family]()
    if family != "ngram":
        model = model.double().eval().requires_grad_(False)
        model.decoder.head.table.weight *= 3  # so that what it writes depends on what it read
    return model


def get_ids(outputs):
    return [[hypothesis.ids for hypothesis in nbest] for nbest in outputs]


@pytest.fixture(autouse=True)
def one_thread():
    with use_threads(1):  # the steps are tiny
        yield


@pytest.mark.parametrize("config", SEARCHES, ids=lambda config: config.search + "-processors" * config.processes_logits)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_prompt_does_not_depend_on_the_others(family, config):
    model = build_model(family)
    ((numbers, together),) = decode_batches(model, PROMPTS, config)  # all at once
    alone = [decode(model, [PROMPTS[number]], config)[0] for number in numbers]
    assert get_ids(together) == get_ids(alone)
    assert len({nbest[0].ids for nbest in together}) > 2
    for actual, expected in zip(together, alone, strict=True):
        assert [h.log_prob for h in actual] == pytest.approx([h.log_prob for h in expected], abs=1e-4)


CATALOGUED = [
    name for name, entry in CATALOG.items() if "language-model" in entry.config.tasks and entry.family != "counts"
]


@pytest.mark.parametrize("name", CATALOGUED)
def test_every_catalogued_language_model_decodes_prompts_independently(name):
    torch.manual_seed(4)
    model = headwise.build(f"{name}-tiny", vocab=VOCAB, task="language-model").double().eval()
    prompts = [*PROMPTS, [4, 5, 6, 7] * 6]
    together = decode(model, prompts, SEARCHES[0])
    assert get_ids(together) == [get_ids(decode(model, [prompt], SEARCHES[0]))[0] for prompt in prompts]


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_padding_may_be_left_or_right(family):
    model = build_model(family)
    rows = [[BOS, *prompt] for prompt in PROMPTS]
    longest = max(map(len, rows))
    right = torch.tensor([row + [PAD] * (longest - len(row)) for row in rows])
    left = torch.tensor([[PAD] * (longest - len(row)) + row for row in rows])
    tokens = torch.arange(4, 4 + len(rows))
    alone = [
        model.step(token[None], model.start(torch.tensor([row])))[0] for row, token in zip(rows, tokens, strict=True)
    ]
    for prompts in (left, right):
        logits, _ = model.step(tokens, model.start(prompts))
        torch.testing.assert_close(logits, torch.cat(alone))


@pytest.mark.parametrize("family", [family for family in FAMILIES if family != "ngram"])
@torch.no_grad()
def test_decode_steps_and_modules_alternate_over_padding(family):
    model = build_model(family)
    prompts = torch.tensor([[1, 5, 6, 7], [1, 8, 0, 0], [0, 0, 0, 0]])
    stepped, turns = model.start(prompts, beams=2), model.start(prompts, beams=2)
    tokens = torch.arange(4, 10)
    for step in range(5):
        logits, stepped = model.step(tokens, stepped)
        if step % 2:
            other, turns = model.step(tokens, turns)
        else:
            with record():  # goes through the modules, which show their attention
                other, turns = model.step(tokens, turns)
        torch.testing.assert_close(logits, other)
        tokens = logits.argmax(-1)
        if step == 2:  # the first source goes, and the beams of the others change places
            rows = torch.tensor([3, 2, 5, 4])
            stepped, turns, tokens = stepped.select(rows), turns.select(rows), tokens[rows]


@pytest.mark.parametrize("positions", POSITIONS, ids=str)
@torch.no_grad()
def test_prompts_of_one_length_need_no_mask(positions):
    state = build_model(str(positions)).start(torch.tensor([[1, 5, 6], [1, 8, 9]]))
    assert isinstance(state.cache, DecodingCache) and state.padding_lengths is None
    assert state.cache.growing and not state.cache.keep


def test_an_ensemble_is_ragged_if_its_members_are():
    models = [build_model("rotary"), build_model("lstm")]
    both = Ensemble(models)
    assert both.ragged and both.max_length == 0
    together = decode(both, PROMPTS, SEARCHES[0])
    assert get_ids(together) == [get_ids(decode(both, [prompt], SEARCHES[0]))[0] for prompt in PROMPTS]
    assert both.training and not any(model.training for model in models)  # all as they were


class Mean(Part):
    """The mean of all inputs so far: knows of no padding."""

    @property
    def properties(self):
        return Properties(causal=True, steppable=True)

    def transform(self, stream, ctx):
        before = ctx.cache.get_state(ctx.path, lambda: torch.zeros_like(stream.x[:, 0]))
        sums = before.unsqueeze(1) + stream.x.cumsum(1)
        ctx.cache.put_state(ctx.path, sums[:, -1])
        return sums / (stream.pos.unsqueeze(-1) + 1)


def test_parts_without_padding_masks_get_prompts_of_one_length():
    base = deepcopy(build_model("pre-norm"))
    base.decoder.stack.layers[0] = PreNorm([Mean()], lambda: torch.nn.Identity())
    model = LanguageModel(base.decoder)
    assert not model.ragged
    sizes = [len(numbers) for numbers, _ in decode_batches(model, PROMPTS, SEARCHES[0])]
    assert sizes == [1, 1, 1, 1, 2, 1]
    together = decode(model, PROMPTS, SEARCHES[0])
    assert get_ids(together) == [get_ids(decode(model, [prompt], SEARCHES[0]))[0] for prompt in PROMPTS]


def test_learned_positions_limit_the_output():
    model = deepcopy(build_model(str(POSITIONS[1])))  # 24 positions
    model.decoder.head.bias = torch.nn.Parameter(torch.zeros(VOCAB, dtype=torch.float64))
    with torch.no_grad():
        model.decoder.head.bias[2] = -100.0  # no end before it is due
    outputs = decode(model, [[5] * 3, [6] * 22, []], DecodeConfig(max_length=100, max_extra=100))
    assert [len(nbest[0].ids) for nbest in outputs] == [20, 1, 23]
    with pytest.raises(
        headwise.errors.UserError, match="a prompt of 23 tokens is too long: this model has 24 positions"
    ):
        decode(model, [[5], [5] * 23])
