"""Texts longer than the context of training: what is in sight, step by step."""

import pytest
import torch

import headwise
from headwise.decode.config import DecodeConfig
from headwise.decode.driver import decode, stream, use_threads
from headwise.decode.ensemble import Ensemble
from headwise.decode.window import SlidingWindow, wrap_in_window
from headwise.text import BOS

VOCAB, CONTEXT = 24, 8
PROMPTS = [[5, 6, 7], [9], [], [7, 7, 8, 10, 12, 15, 4, 4, 9, 3, 5], [6, 11]]
SEARCHES = {
    "greedy": DecodeConfig(max_length=30, max_extra=30, min_length=30),
    "sample": DecodeConfig(max_length=30, max_extra=30, temperature=1.0, top_p=0.95, nbest=2),
    "beam": DecodeConfig(max_length=20, max_extra=20, min_length=12, beams=3, nbest=2),
}
POSITIONS = {"learned": {"kind": "learned", "max_length": CONTEXT}, "rotary": "rotary"}


@pytest.fixture(autouse=True)
def one_thread():
    with use_threads(1):  # the steps are tiny
        yield


def build_model(positions, seed=3, **settings):
    torch.manual_seed(seed)
    model = headwise.build(
        "transformer-tiny", vocab=VOCAB, task="language-model", positions=positions, tie="none", **settings
    )
    model = model.double().eval().requires_grad_(False)
    model.decoder.head.table.weight *= 3  # so that what it writes depends on what it read
    return model


def find_window(text, prompt):
    """The part of `text`, start mark included, in sight of its last token: before a window is full it grows, then the
    later half of it is read anew."""
    begin = max(0, prompt + 1 - CONTEXT)  # a prompt's own beginning is never seen
    while len(text) - begin > CONTEXT:
        begin += CONTEXT - CONTEXT // 2
    return text[begin:]


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("prompt", PROMPTS)
def test_each_token_depends_on_the_window_alone(positions, prompt):
    model = build_model(POSITIONS[positions])
    ((hypothesis,),) = decode(model, [prompt], SEARCHES["greedy"].replace(context=CONTEXT))
    assert len(hypothesis.ids) == 30
    text = [BOS, *prompt]
    for token in hypothesis.ids:
        seen = find_window(text, len(prompt))
        assert CONTEXT // 2 < len(seen) <= CONTEXT or len(text) <= CONTEXT // 2
        logits = model(torch.tensor([seen]))[0, -1]  # the whole forward pass, with no cache
        logits[[0, 1, 2]] = -torch.inf
        assert token == int(logits.argmax())
        text.append(token)


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("positions", POSITIONS)
def test_a_prompt_does_not_depend_on_the_others(positions, search):
    model, config = build_model(POSITIONS[positions]), SEARCHES[search].replace(context=CONTEXT)
    together = decode(model, PROMPTS, config)
    alone = [decode(model, [prompt], config)[0] for prompt in PROMPTS]
    assert [[h.ids for h in nbest] for nbest in together] == [[h.ids for h in nbest] for nbest in alone]
    assert max(len(nbest[0].ids) for nbest in together) > CONTEXT


def test_scores_of_beams_are_those_of_their_sentences():
    model, config = build_model("rotary"), SEARCHES["beam"].replace(context=CONTEXT)
    for hypothesis in decode(model, [PROMPTS[0]], config)[0]:
        assert len(hypothesis.ids) > CONTEXT
        text, total = [BOS, *PROMPTS[0]], 0.0
        for token in (*hypothesis.ids, model.end_id):
            logits = model(torch.tensor([find_window(text, len(PROMPTS[0]))]))[0, -1]
            total += float(logits.log_softmax(-1)[token])
            text.append(token)
        assert hypothesis.log_prob == pytest.approx(total, abs=1e-4)


def test_a_stream_gives_the_same_tokens():
    model, config = build_model(POSITIONS["learned"]), SEARCHES["greedy"].replace(context=CONTEXT)
    for prompt in PROMPTS:
        ((hypothesis,),) = decode(model, [prompt], config)
        assert tuple(stream(model, prompt, config)) == hypothesis.ids


def test_an_ensemble_decodes_with_a_window():
    both = Ensemble([build_model("rotary"), build_model(POSITIONS["learned"], seed=4)]).eval()
    ((hypothesis,),) = decode(both, [[5, 6]], SEARCHES["greedy"].replace(context=1000))  # its positions are fewer
    assert len(hypothesis.ids) == 30


def test_texts_that_fit_need_no_window():
    model = build_model("rotary")
    for prompt, most, fits in (([5, 6], 5, True), ([5, 6], 6, False)):  # the start, two tokens and those written
        reader = wrap_in_window(model, [prompt], DecodeConfig(max_length=most, max_extra=most, context=CONTEXT))
        assert (reader is model) == fits and isinstance(reader, SlidingWindow) != fits


def test_dropout_is_off_while_decoding_and_restored_afterwards():
    model = build_model("rotary", dropout=0.5).train()
    config = SEARCHES["greedy"].replace(context=CONTEXT)
    assert decode(model, [[5]], config) == decode(model, [[5]], config)
    assert model.training and model.decoder.training
    model.eval()
    decode(model, [[5]], config)
    assert not model.training


@pytest.mark.parametrize(
    ("kind", "reach"),
    [("gpt2-tiny", 8), ("performer-tiny", 8), ("lstm-tiny", 0), ("transformer-xl-tiny", 0), ("ngram", 0)],
)
def test_recurrent_states_and_ngrams_need_no_window(tmp_path, kind, reach):
    from headwise.experiment.config import parse_experiment
    from headwise.experiment.run import train_experiment

    (tmp_path / "text").write_text("to be or not to be, that is the question\n" * 8)
    learns = {"steps": 1, "batch_size": 2} if kind != "ngram" else {"epochs": 1}
    experiment = parse_experiment({
        "name": "one", "task": {"kind": "language-model", "context": 8}, "tokeniser": "characters",
        "model": kind, "train": {"threads": 1, **learns},
        "data": {"train": str(tmp_path / "text"), "format": "text", "cache": str(tmp_path / "cache")},
    })  # fmt: skip
    run = headwise.load(train_experiment(experiment, tmp_path / "runs")[0].path)
    assert run.build_decode_config().context == reach
    assert run.build_decode_config(context=5).context == 5
    [[output]] = run.continue_prompts(["to be"], max_ratio=0, max_extra=40, max_length=40, min_length=40)
    assert len(run.tokenisers.target.encode(output.text)) >= 40
