"""Stop strings, and texts that grow: a model that recites makes every case."""

from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from headwise.decode.config import DecodeConfig
from headwise.decode.driver import decode, stream
from headwise.decode.text import cut_at_stop, decode_continuation, stream_text
from headwise.text import BOS, EOS
from headwise.text.config import BpeConfig
from headwise.text.normalise import PLAIN
from headwise.text.subword import Bpe
from headwise.text.vocabulary import Bytes, Characters, Words


@dataclass(frozen=True)
class Place:
    rows: torch.Tensor  # (R,) which text
    at: int = 0

    def select(self, rows):
        return Place(self.rows[rows], self.at)


class Reciter(nn.Module):
    """A language model that recites a text of its own after each prompt, whatever the prompt is."""

    start_id, end_id, continues_prompt, ragged, max_length = BOS, EOS, True, True, 0

    def __init__(self, texts, vocab):
        super().__init__()
        self.vocab = vocab
        self.texts = [[*text, EOS] for text in texts]

    def start(self, source, beams=1):
        return Place(torch.arange(len(source)).repeat_interleave(beams))

    def step(self, tokens, state):
        logits = torch.zeros(len(tokens), self.vocab)
        for row, number in enumerate(state.rows.tolist()):
            text = self.texts[number]
            logits[row, text[min(state.at, len(text) - 1)]] = 20.0
        return logits, Place(state.rows, state.at + 1)


TEXTS = ["ab abba, naïve ☃☃\n", "xa☃b\n\nbab ba", "", "ïab"]
TOKENISERS = {
    "characters": Characters(sorted(set("".join(TEXTS)))),
    "bytes": Bytes(),
    "bpe": Bpe.train(["ab abba, naïve ☃☃", " ba☃b bab ba"] * 4, BpeConfig(size=280), PLAIN),
    "words": Words(["ab", "abba,", "naïve", "ba", "bab"]),
}
GREEDY = DecodeConfig(max_length=60, max_extra=60)
alphabet = st.text("ab ☃ï\n,", max_size=14)


def expected_text(tokeniser, prompt, ids, stop):
    """The text of as few tokens as it takes to hold a stop string, cut before it."""
    known = len(tokeniser.decode(prompt))
    for count in range(len(ids) + 1):
        text = tokeniser.decode([*prompt, *ids[:count]])[known:]
        if any(string in text for string in stop):
            return cut_at_stop(text, stop)
    return text


@settings(deadline=None, max_examples=80)
@given(
    kind=st.sampled_from(sorted(TOKENISERS)),
    prompt=alphabet,
    text=alphabet,
    stop=st.lists(st.text("ab ☃ï\n,", min_size=1, max_size=4), max_size=3),
)
def test_a_text_is_cut_before_the_first_stop_string(kind, prompt, text, stop):
    tokeniser = TOKENISERS[kind]
    prompt, ids = tokeniser.encode(prompt), tokeniser.encode(text)
    config, model = GREEDY.replace(stop=stop), Reciter([ids], tokeniser.size)
    expected = expected_text(tokeniser, prompt, ids, stop)
    ((hypothesis,),) = decode(model, [prompt], config, tokeniser=tokeniser)
    assert decode_continuation(tokeniser, prompt, hypothesis.ids, stop) == expected
    shown = ""
    for piece in stream_text(tokeniser, prompt, stream(model, prompt, config, tokeniser=tokeniser), stop):
        shown += piece
        assert expected.startswith(shown)
    assert shown == expected


@pytest.mark.parametrize("config", [GREEDY, GREEDY.replace(beams=2), GREEDY.replace(temperature=1e-3, nbest=2)])
def test_rows_stop_independently(config):
    tokeniser = TOKENISERS["bytes"]
    texts = ["one. two", "no end", "three.", ". four"]
    model = Reciter([tokeniser.encode(text) for text in texts], tokeniser.size)
    prompts = [[100, 101], [100, 102], [100, 103], [100, 104]]
    outputs = decode(model, prompts, config.replace(stop=[". ", "!"]), tokeniser=tokeniser)
    texts = [decode_continuation(tokeniser, p, nbest[0].ids, [". "]) for p, nbest in zip(prompts, outputs, strict=True)]
    assert texts == ["one", "no end", "three.", ""]
    assert [len(nbest[0].ids) for nbest in outputs] == [5, 6, 6, 2]  # no token after the string was asked for
    assert outputs[0][0].log_prob == pytest.approx(0, abs=1e-4)  # the end after it is free


def test_a_stop_string_in_the_prompt_is_ignored():
    tokeniser = TOKENISERS["characters"]
    model = Reciter([tokeniser.encode("ba ab")], tokeniser.size)
    ((hypothesis,),) = decode(model, [tokeniser.encode("ab")], GREEDY.replace(stop=["ab", "bb"]), tokeniser=tokeniser)
    assert tokeniser.decode(hypothesis.ids) == "ba ab"


def test_no_token_is_read_after_a_stop_string():
    tokeniser, asked = TOKENISERS["bytes"], []

    def tokens():
        for token in tokeniser.encode("sn☃w☃!☃"):
            asked.append(token)
            yield token

    assert "".join(stream_text(tokeniser, [], tokens(), ["☃!"])) == "sn☃w"
    assert tokeniser.decode(asked) == "sn☃w☃!"


def test_an_incomplete_character_at_the_end_is_streamed():
    tokeniser = TOKENISERS["bytes"]
    ids = tokeniser.encode("a☃")[:-1]
    assert list(stream_text(tokeniser, [], ids)) == ["a", "\ufffd"] and tokeniser.decode(ids) == "a\ufffd"
