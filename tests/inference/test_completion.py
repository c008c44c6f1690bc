"""Completions against all words there are, enumerated."""

from itertools import product

import pytest
import torch

from headwise.inference.completion import Completer, pieces
from headwise.models.ngram import NgramConfig
from headwise.text import BOS, EOS, UNK
from headwise.text.config import BpeConfig
from headwise.text.normalise import PLAIN
from headwise.text.subword import Bpe
from headwise.text.vocabulary import Bytes, Characters, Words

TEXT = "ab abba bab aab abab ba abba abb "


def learnt(tokeniser, texts, order=3):
    return NgramConfig(order=order).build(tokeniser.size).fit(tokeniser.encode_batch(texts))


def joint(model, ids, enders=()):
    """P of a text's tokens, and of any of `enders` after them."""
    log_p = model(torch.tensor([[BOS, *ids]]))[0].double()
    ended = log_p[-1, list(enders)].exp().sum() if enders else 1
    return float(log_p[range(len(ids)), ids].sum().exp() * ended)


def test_letters_are_completed_as_enumeration_says():
    tokeniser = Characters("ab ")
    model = learnt(tokeniser, [TEXT])
    enders = (tokeniser.encode(" ")[0], EOS, UNK)
    start = joint(model, tokeniser.encode("ba ab"))
    words = ("ab" + "".join(letters) for length in range(8) for letters in product("ab", repeat=length))
    truth = sorted(
        ((joint(model, tokeniser.encode("ba " + word), enders) / start, word) for word in words), reverse=True
    )
    found = Completer(model, tokeniser, beams=256)("ba ab", count=4)
    assert [each.word for each in found] == [word for _, word in truth[:4]]
    assert [each.probability for each in found] == pytest.approx([p for p, _ in truth[:4]], rel=1e-4)


def test_words_are_those_of_the_vocabulary_that_begin_so():
    tokeniser = Words(["the", "cat", "car", "dog", "ca"])
    model = learnt(tokeniser, ["the cat", "the cat", "the car", "the dog", "dog the ca"], order=2)
    the = tokeniser.encode("the")
    truth = {word: joint(model, [*the, *tokeniser.encode(word)]) for word in ("cat", "car", "ca")}
    found = {each.word: each.probability for each in Completer(model, tokeniser)("the ca")}
    assert found == pytest.approx({word: p / sum(truth.values()) for word, p in truth.items()}, rel=1e-4)
    assert next(iter(found)) == "cat"
    assert {each.word for each in Completer(model, tokeniser)("the ", 9)} == {"the", "cat", "car", "dog", "ca"}


@pytest.fixture(scope="module")
def bpe():
    texts = ["the present president prefers a present", "the president was present", "they prefer it"] * 3
    return texts, Bpe.train(texts, BpeConfig(size=290), PLAIN)


def test_all_ways_to_cut_a_word_into_pieces_count_together(bpe):
    texts, tokeniser = bpe
    model = learnt(tokeniser, texts, order=2)
    completer = Completer(model, tokeniser, beams=128)
    enders = [token for token in (~completer.inside).nonzero()[:, 0].tolist() if token > BOS]
    found = completer("the pre", count=2)

    def ways(letters):
        """All token sequences that spell the letters."""
        if not letters:
            return [[]]
        fitting = [token for token, piece in enumerate(completer.pieces) if piece and letters.startswith(piece)]
        return [[token, *rest] for token in fitting for rest in ways(letters[len(completer.pieces[token]) :])]

    spelt = [ways(b" " + each.word.encode()) for each in found]
    truth = [sum(joint(model, [*tokeniser.encode("the"), *ids], enders) for ids in each) for each in spelt]
    assert len(spelt[0]) > 10
    assert found[0].probability / found[1].probability == pytest.approx(truth[0] / truth[1], rel=1e-3)


@pytest.mark.parametrize("text", ["the pre", "the\npre", "pre"])
def test_pieces_know_where_a_word_begins(bpe, text):
    texts, tokeniser = bpe
    found = Completer(learnt(tokeniser, [*texts, *["the\npresent"] * 5]), tokeniser)(text, count=50)
    assert found[0].word in ("present", "president", "prefer", "prefers")
    assert all(each.word.startswith("pre") for each in found) and sum(each.probability for each in found) <= 1.001


def test_bytes_of_a_character_stay_together():
    tokeniser = Bytes()
    found = Completer(learnt(tokeniser, ["schön schön schade"], order=4), tokeniser)("sch", count=2)
    assert {each.word for each in found} == {"schön", "schade"}


def test_pieces_spell_the_text(bpe):
    text = "naïve – 1,5 €"
    for tokeniser in (bpe[1], Bytes()):
        named = pieces(tokeniser)
        assert b"".join(named[token] for token in tokeniser.encode(text)).decode().strip() == text


def test_a_beginning_that_nothing_continues_gives_nothing():
    tokeniser = Words(["the", "cat"])
    assert Completer(learnt(tokeniser, ["the cat"]), tokeniser)("the x") == []
