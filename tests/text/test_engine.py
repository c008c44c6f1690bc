"""Errors of a tokenizer.json that anybody may have written."""

import pytest

from headwise.errors import UserError
from headwise.text.engine import engine_errors
from headwise.text.hf import HfTokeniser, VocabularyMap

REGEX = {"type": "Split", "pattern": {"Regex": "(x+x+)+y"}, "behavior": "Isolated", "invert": False}


def make_engine(**changes):
    model = {"type": "WordLevel", "vocab": {"<unk>": 0, "a": 1}, "unk_token": "<unk>"}
    keys = ("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor", "decoder")
    return {"version": "1.0", "added_tokens": [], **dict.fromkeys(keys), "model": model} | changes


def test_a_regular_expression_that_never_ends_is_one_sentence():
    engine = make_engine(pre_tokenizer=REGEX)
    tokeniser = HfTokeniser(engine, VocabularyMap(2, unk=0))
    assert len(tokeniser.encode("a")) == 1
    with pytest.raises(UserError, match=r"tokeniser: its engine fails on this text .*; use another tokenizer.json"):
        tokeniser.encode("x" * 40)


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError, UserError])
def test_other_errors_pass(error):
    with pytest.raises(error), engine_errors():
        raise error("as it is")
