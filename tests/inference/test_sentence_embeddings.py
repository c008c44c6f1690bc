"""Vectors of texts: from any neural model, the same in any batch, pooled as asked."""

import pytest
import torch

import headwise
from headwise.blocks.stream import Context
from headwise.errors import UserError
from headwise.inference.sentence_embeddings import embed
from headwise.text import BOS, EOS
from headwise.text.tokenisers import Tokenisers
from headwise.text.vocabulary import Characters

LETTERS = Characters("abcdefgh")
BOTH = Tokenisers(LETTERS, LETTERS)
TEXTS = ["abc", "hgfedcba", "", "d"]
SHAPES = [
    ("bert", "masked"), ("transformer", "transduce"), ("gpt2", "language-model"), ("lstm", "tag"),
    ("lstm", "classify"), ("bahdanau", "transduce"), ("bert", "tag"),
]  # fmt: skip


def tiny(name, task):
    torch.manual_seed(0)
    return headwise.build(f"{name}-tiny", vocab=LETTERS.size, task=task).eval()


@pytest.mark.parametrize(("name", "task"), SHAPES)
def test_a_text_has_the_same_vector_alone_and_among_others(name, task):
    model = tiny(name, task)
    together = embed(model, BOTH, TEXTS)
    assert together.shape[0] == 4 and torch.isfinite(together).all()
    for row, text in zip(together, TEXTS, strict=True):
        torch.testing.assert_close(embed(model, BOTH, [text])[0], row, rtol=1e-4, atol=1e-5)


def test_pools_equal_their_definitions():
    model = tiny("bert", "masked")
    ids = torch.tensor([[*LETTERS.encode("abc"), EOS]])
    with torch.no_grad():
        stream = model.encoder(ids, Context())
        expected = {"mean": stream.x.mean(1), "first": stream.x[:, 0], "pooler": model.next_sentence_head[:2](stream)}
    for pool, vector in expected.items():
        torch.testing.assert_close(embed(model, BOTH, ["abc"], pool), vector)
    assert embed(model, BOTH, TEXTS, normalised=True).norm(dim=1) == pytest.approx(torch.ones(4))


def test_embeddings_can_be_inputs_of_training():
    probe = torch.nn.Linear(32, 2)
    probe(embed(tiny("bert", "masked"), BOTH, TEXTS)).sum().backward()
    assert probe.weight.grad is not None


def test_a_language_model_is_embedded_by_its_last_states():
    model = tiny("gpt2", "language-model")
    ids = torch.tensor([[BOS, *LETTERS.encode("abc")]])
    with torch.inference_mode():
        states = model.decoder(ids, Context()).x
    torch.testing.assert_close(embed(model, BOTH, ["abc", "abcdefg"], "last")[0], states[0, -1])
    torch.testing.assert_close(embed(model, BOTH, ["abc", "abcdefg"])[0], states[0].mean(0))


def test_models_without_embeddings_are_refused():
    with pytest.raises(UserError, match="has no pooler"):
        embed(tiny("transformer", "transduce"), BOTH, TEXTS, "pooler")
    with pytest.raises(UserError, match="did you mean mean"):
        embed(tiny("bert", "masked"), BOTH, TEXTS, "means")
    with pytest.raises(UserError, match="no hidden states"):
        embed(headwise.build("ngram", vocab=LETTERS.size), BOTH, TEXTS)
    assert embed(tiny("bert", "masked"), BOTH, []).shape[0] == 0
