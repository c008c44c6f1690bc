"""Rows that join and leave a running state: each gives the tokens and logits that it gives alone, in float64."""

from functools import cache

import pytest
import torch

import headwise
from headwise.blocks.record import record
from headwise.decode.config import DecodeConfig
from headwise.decode.driver import use_threads
from headwise.decode.ensemble import Ensemble
from headwise.decode.window import wrap_in_window
from headwise.errors import UserError
from headwise.models.ngram import NgramConfig
from headwise.text import BOS

VOCAB, STEPS = 24, 20
PROMPTS = [[5, 6, 7], [9], [], [7, 7, 8, 10, 12, 15, 4, 4, 9]]
SOURCES = [[5, 6, 7, 2], [9, 2], [8, 8, 11, 14, 20, 3, 2], [7, 7, 8, 10, 12, 15, 4, 4, 9, 2]]
JOINED = [0, 7, 7, 12]  # the step at which each row joins
LEAVES = 15  # the step at which the first two rows leave
POSITIONS = ["sinusoid", {"kind": "learned", "max_length": 40}, "rotary", "alibi", "t5", "shaw", "transformer_xl"]


def language_model(**settings):
    return headwise.build("transformer-tiny", vocab=VOCAB, task="language-model", tie="none", **settings)


def encoder_decoder(name="transformer", **settings):
    return headwise.build(f"{name}-tiny", vocab=VOCAB, task="transduce", **settings)


LANGUAGE_MODELS = {
    **{str(positions): lambda positions=positions: language_model(positions=positions) for positions in POSITIONS},
    "shared-keys": lambda: language_model(positions="rotary", decoder={"layers": [[{"key_value_heads": 1}, "mlp"]]}),
    "written-out": lambda: language_model(positions="rotary", decoder={"layers": [[{"kernel": "plain"}, "mlp"]]}),
    "window": lambda: language_model(decoder={"layers": [[{"score_mods": [{"kind": "window", "left": 3}]}, "mlp"]]}),
    "linear": lambda: language_model(mixer="linear"),
    "lsh": lambda: language_model(mixer={"kind": "lsh", "chunk": 4, "buckets": 2}),
    "segments": lambda: headwise.build("transformer-xl-tiny", vocab=VOCAB, memory_length=5),  # forgets meanwhile
    "lstm": lambda: headwise.build("lstm-tiny", vocab=VOCAB, task="language-model", tie="none"),
}
ENCODER_DECODERS = {
    "sinusoid": encoder_decoder,
    "rotary": lambda: encoder_decoder(
        positions="rotary",
        decoder={"layers": [["attention", {"attend_to": "memory", "score_mods": ["rotary"]}, "mlp"]]},
    ),
    "t5": lambda: encoder_decoder("t5"),
    "bart": lambda: encoder_decoder("bart"),  # reads a mark before the first token
    "bahdanau": lambda: encoder_decoder("bahdanau"),
    "luong": lambda: encoder_decoder("luong"),
    "gnmt": lambda: encoder_decoder("gnmt"),
    "deep-att": lambda: encoder_decoder("deep-att"),
    "cho": lambda: encoder_decoder("cho"),
}


@cache
def build_model(kind, name):
    torch.manual_seed(3)
    model = {"lm": LANGUAGE_MODELS, "both": ENCODER_DECODERS}[kind][name]()
    model = model.double().eval().requires_grad_(False)
    model.decoder.head.table.weight *= 3  # so that what it writes depends on what it read
    return model


@pytest.fixture(autouse=True)
def one_thread():
    with use_threads(1):
        yield


def build_inputs(kind):
    return [[BOS, *prompt] for prompt in PROMPTS] if kind == "lm" else SOURCES


def decode_greedily(model, state, tokens, steps):
    """Greedy steps: the logits of each, (R, steps, V), and the last tokens."""
    logits = []
    for _ in range(steps):
        out, state = model.step(tokens, state)
        logits.append(out)
        tokens = out[:, 3:].argmax(-1) + 3
    return torch.stack(logits, dim=1), tokens


@torch.no_grad()
def run_together(model, texts, beams=1, watched=()):
    """The logits of each row, which joins and leaves at its steps; beams of a row are fed the same tokens."""
    outputs, state, tokens, rows = {row: [] for row in range(len(texts))}, None, None, []
    for step in range(STEPS):
        for row, text in enumerate(texts):
            if JOINED[row] == step:
                new, first = model.start(torch.tensor([text]), beams), torch.full((beams,), 4 + row)
                state = new if state is None else state.join(new)
                tokens, rows = first if tokens is None else torch.cat((tokens, first)), [*rows, row]
        if step == LEAVES:
            keep = torch.arange(len(rows) * beams).view(-1, beams).flip(0)[: len(rows) - 2].flatten()
            state, tokens, rows = state.select(keep), tokens[keep], rows[::-1][: len(rows) - 2]
        if step in watched:
            with record():
                out, state = model.step(tokens, state)
        else:
            out, state = model.step(tokens, state)
        tokens = out[:, 3:].argmax(-1) + 3
        for place, row in enumerate(rows):
            outputs[row].append(out[place * beams : (place + 1) * beams])
    return {row: torch.stack(logits, dim=1) for row, logits in outputs.items()}, state


@torch.no_grad()
def check_join(model, kind, beams=1, watched=(), tolerance=1e-12):
    together, state = run_together(model, build_inputs(kind), beams, watched)
    written = set()
    for row, text in enumerate(build_inputs(kind)):
        logits = together[row]
        alone, _ = decode_greedily(model, model.start(torch.tensor([text])), torch.tensor([4 + row]), logits.shape[1])
        torch.testing.assert_close(logits, alone.expand_as(logits), rtol=tolerance, atol=tolerance)
        assert torch.equal(logits[0].argmax(-1), alone[0].argmax(-1))
        written.add(tuple(alone[0].argmax(-1)[:5].tolist()))
    assert len(written) > 1
    return state


@pytest.mark.parametrize("name", LANGUAGE_MODELS)
def test_prompts_of_different_lengths_join_a_language_model(name):
    state = check_join(build_model("lm", name), "lm")
    assert state.lengths.tolist() == [1 + len(PROMPTS[3]) + 8, 1 + len(PROMPTS[2]) + 13]


@pytest.mark.parametrize("name", ENCODER_DECODERS)
def test_sources_of_different_lengths_join_an_encoder_decoder(name):
    check_join(build_model("both", name), "both")


@pytest.mark.parametrize("name", ["rotary", "lstm"])
def test_the_beams_of_a_row_join_together(name):
    check_join(build_model("lm", name), "lm", beams=2)


def test_the_beams_of_a_source_join_together():
    check_join(build_model("both", "sinusoid"), "both", beams=2)


@pytest.mark.parametrize(("kind", "name"), [("lm", "alibi"), ("lm", "segments"), ("both", "rotary"), ("both", "luong")])
def test_modules_and_decode_steps_alternate(kind, name):
    check_join(build_model(kind, name), kind, watched={3, 7, 8, 15, 17})


def test_an_ensemble_joins_as_its_members_do():
    both = Ensemble([build_model("lm", "rotary"), build_model("lm", "lstm")])
    check_join(both, "lm", tolerance=1e-6)  # its log P are in float32


@torch.no_grad()
def test_an_ngram_model_joins():
    lines = torch.randint(3, VOCAB, (40, 12), generator=torch.Generator().manual_seed(1)).tolist()
    model = NgramConfig(order=3).build(VOCAB).fit(lines)
    check_join(model, "lm")


@torch.no_grad()
def test_rows_of_one_length_need_no_mask():
    model = build_model("lm", "alibi")
    state = model.start(torch.tensor([[1, 5, 6]])).join(model.start(torch.tensor([[1, 8, 9]])))
    assert state.padding_lengths is None and state.cache.growing
    state.join(model.start(torch.tensor([[1]])))
    assert state.padding_lengths.tolist() == [[0], [0], [2]]
    state.select(torch.tensor([1, 0]))  # what is left has one length
    assert state.padding_lengths is None
    state = state.join(model.start(torch.tensor([[1, 4, 4]])))
    logits, state = model.step(torch.tensor([3, 3, 3]), state)
    assert state.padding_lengths is None
    alone, _ = model.step(torch.tensor([3]), model.start(torch.tensor([[1, 4, 4]])))
    torch.testing.assert_close(logits[2:], alone)


@torch.no_grad()
def test_columns_that_no_row_needs_are_dropped():
    """A state in which rows come and go has as many columns as its longest row."""
    model = build_model("lm", str(POSITIONS[1]))
    state = model.start(torch.tensor([[1]]))
    for _ in range(6):
        _, state = model.step(torch.tensor([5]), state)
        state = state.join(model.start(torch.tensor([[1]])))
        tokens = torch.tensor([5, 5])
        for _ in range(8):
            _, state = model.step(tokens, state)
        state = state.select(torch.tensor([1]))
        assert state.length == 9 and state.padding_lengths is None
        assert {entry.width for entry in state.cache.growing.values()} == {9}
        state = model.start(torch.tensor([[1, 5]])).join(state).select(torch.tensor([0]))
        assert state.length == 2 and {entry.width for entry in state.cache.growing.values()} == {2}


@pytest.mark.parametrize("name", ["sinusoid", "bahdanau"])
@torch.no_grad()
def test_the_columns_of_a_dropped_source_are_dropped(name):
    model = build_model("both", name)
    state = model.start(torch.tensor([SOURCES[3], SOURCES[0] + [0] * 6]))
    _, state = model.step(torch.tensor([4, 5]), state)
    state = state.select(torch.tensor([1])).join(model.start(torch.tensor([SOURCES[1]])))
    assert state.memory["encoder"].x.shape[1] == len(SOURCES[0])
    logits, state = model.step(torch.tensor([6, 4]), state)
    alone = model.start(torch.tensor([SOURCES[0]]))
    _, alone = model.step(torch.tensor([5]), alone)
    torch.testing.assert_close(logits[:1], model.step(torch.tensor([6]), alone)[0], rtol=1e-12, atol=1e-12)


@torch.no_grad()
def test_states_that_cannot_join_are_refused():
    model, other = build_model("lm", "rotary"), build_model("lm", "alibi")
    prompt = torch.tensor([[1, 5]])
    with pytest.raises(UserError, match="join: the states are those of different models"):
        model.start(prompt).join(other.start(prompt))
    with pytest.raises(UserError, match="join: a state with 2 beams cannot join one with 1"):
        model.start(prompt).join(model.start(prompt, beams=2))
    compressed = language_model(mixer="compressed").eval()
    with pytest.raises(UserError, match="different lengths cannot share the state of CompressedAttention; join rows"):
        compressed.start(prompt).join(compressed.start(prompt[:, :1]))
    window = wrap_in_window(model, [[5] * 9], DecodeConfig(context=4))
    with pytest.raises(UserError, match="join: a sliding window restarts all rows at once"):
        window.start(prompt).join(window.start(prompt))
