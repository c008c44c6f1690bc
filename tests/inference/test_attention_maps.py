"""Attention of models that are no encoder-decoders."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import headwise
from headwise import UserError
from headwise.inference.attention_maps import collect_attention
from headwise.text.tokenisers import Tokenisers
from headwise.text.vocabulary import Characters

LETTERS = Characters("abcdefgh")
SIDES = Tokenisers(LETTERS, LETTERS)


def test_a_language_model_attends_to_earlier_tokens_only() -> None:
    torch.manual_seed(0)
    model = headwise.build("gpt2-tiny", vocab=LETTERS.size).eval()
    maps = collect_attention(model, SIDES, "abcd")
    assert (
        maps.main == "decoder" and maps.rows("decoder") == tuple("abcd") and maps.columns("decoder")[1:] == tuple("abc")
    )
    weights = maps.weights["decoder"]
    assert weights.shape == (2, 4, 4, 4)
    assert np.allclose(weights.sum(-1), 1, atol=1e-5) and not np.triu(weights, 1).any()


@pytest.mark.parametrize("task", ["masked", "tag", "classify"])
def test_the_maps_of_an_encoder_include_its_prefix_token(task: str) -> None:
    torch.manual_seed(0)
    model = headwise.build("bert-tiny", vocab=LETTERS.size + 1, outputs=9, task=task).eval()
    maps = collect_attention(model, SIDES, "abc")
    assert maps.main == "encoder" and maps.rows("encoder") == ("<s>", "a", "b", "c", "</s>")
    assert maps.weights["encoder"].shape == (2, 4, 5, 5)


def test_mistakes_are_one_sentence() -> None:
    model = headwise.build("gpt2-tiny", vocab=LETTERS.size)
    with pytest.raises(UserError, match="only encoder-decoder models have a target text"):
        collect_attention(model, SIDES, "ab", target="cd")
    with pytest.raises(UserError, match="there is no text to look at"):
        collect_attention(model, SIDES, "")
    with pytest.raises(UserError, match="no attention to look at"):
        collect_attention(headwise.build("lstm-tiny", vocab=LETTERS.size), SIDES, "ab")
