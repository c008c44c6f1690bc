"""Completions against all words there are, enumerated."""

from itertools import product

import pytest
import torch

from headwise.inference.completion import Completer, token_bytes
from headwise.models.ngram import NgramConfig
from headwise.text import BOS, EOS, UNK
from headwise.text.config import BpeConfig
from headwise.text.normalise import PLAIN
from headwise.text.subword import Bpe
from headwise.text.vocabulary import Bytes, Characters, Words

TEXT = "ab abba bab aab abab ba abba abb "


def fit_ngram(tokeniser, texts, order=3):
    return NgramConfig(order=order).build(tokeniser.size).fit(tokeniser.encode_batch(texts))


def joint_probability(model, ids, enders=()):
    """P of a text's tokens, and of any of `enders` after them."""
    log_p = model(torch.tensor([[BOS, *ids]]))[0].double()
    ended = log_p[-1, list(enders)].exp().sum() if enders else 1
    return float(log_p[range(len(ids)), ids].sum().exp() * ended)


def test_completions_of_letters_equal_enumeration():
    tokeniser = Characters("ab ")
    model = fit_ngram(tokeniser, [TEXT])
    enders = (tokeniser.encode(" ")[0], EOS, UNK)
    start = joint_probability(model, tokeniser.encode("ba ab"))
    words = ("ab" + "".join(letters) for length in range(8) for letters in product("ab", repeat=length))
    truth = sorted(
        ((joint_probability(model, tokeniser.encode("ba " + word), enders) / start, word) for word in words),
        reverse=True,
    )
    completions = Completer(model, tokeniser, beams=256)("ba ab", count=4)
    assert [c.word for c in completions] == [word for _, word in truth[:4]]
    assert [c.probability for c in completions] == pytest.approx([p for p, _ in truth[:4]], rel=1e-4)


def test_words_are_those_of_the_vocabulary_with_the_prefix():
    tokeniser = Words(["the", "cat", "car", "dog", "ca"])
    model = fit_ngram(tokeniser, ["the cat", "the cat", "the car", "the dog", "dog the ca"], order=2)
    the = tokeniser.encode("the")
    truth = {word: joint_probability(model, [*the, *tokeniser.encode(word)]) for word in ("cat", "car", "ca")}
    completions = {c.word: c.probability for c in Completer(model, tokeniser)("the ca")}
    assert completions == pytest.approx({word: p / sum(truth.values()) for word, p in truth.items()}, rel=1e-4)
    assert next(iter(completions)) == "cat"
    assert {c.word for c in Completer(model, tokeniser)("the ", 9)} == {"the", "cat", "car", "dog", "ca"}


@pytest.fixture(scope="module")
def bpe():
    texts = ["the present president prefers a present", "the president was present", "they prefer it"] * 3
    return texts, Bpe.train(texts, BpeConfig(size=290), PLAIN)


def test_the_tokenisations_of_a_word_are_summed(bpe):
    texts, tokeniser = bpe
    model = fit_ngram(tokeniser, texts, order=2)
    completer = Completer(model, tokeniser, beams=128)
    enders = [token for token in (~completer.in_word).nonzero()[:, 0].tolist() if token > BOS]
    completions = completer("the pre", count=2)

    def ways(letters):
        """All token sequences that spell the letters."""
        if not letters:
            return [[]]
        fitting = [token for token, piece in enumerate(completer.token_bytes) if piece and letters.startswith(piece)]
        return [[token, *rest] for token in fitting for rest in ways(letters[len(completer.token_bytes[token]) :])]

    spelt = [ways(b" " + c.word.encode()) for c in completions]
    truth = [
        sum(joint_probability(model, [*tokeniser.encode("the"), *ids], enders) for ids in tokenisations)
        for tokenisations in spelt
    ]
    assert len(spelt[0]) > 10
    assert completions[0].probability / completions[1].probability == pytest.approx(truth[0] / truth[1], rel=1e-3)


@pytest.mark.parametrize("text", ["the pre", "the\npre", "pre"])
def test_tokens_include_the_space_before_a_word(bpe, text):
    texts, tokeniser = bpe
    completions = Completer(fit_ngram(tokeniser, [*texts, *["the\npresent"] * 5]), tokeniser)(text, count=50)
    assert completions[0].word in ("present", "president", "prefer", "prefers")
    assert all(c.word.startswith("pre") for c in completions) and sum(c.probability for c in completions) <= 1.001


def test_bytes_of_a_character_stay_together():
    tokeniser = Bytes()
    completions = Completer(fit_ngram(tokeniser, ["schön schön schade"], order=4), tokeniser)("sch", count=2)
    assert {c.word for c in completions} == {"schön", "schade"}


def test_token_bytes_spell_the_text(bpe):
    text = "naïve – 1,5 €"
    for tokeniser in (bpe[1], Bytes()):
        named = token_bytes(tokeniser)
        assert b"".join(named[token] for token in tokeniser.encode(text)).decode().strip() == text


def test_letters_without_a_word_have_no_completion():
    tokeniser = Words(["the", "cat"])
    assert Completer(fit_ngram(tokeniser, ["the cat"]), tokeniser)("the x") == []
