"""Language modelling: what a text is scored at, and what goes on with it."""

from math import exp, log

import numpy as np
import pytest
import torch

from headwise.config.data import CharactersConfig, DataConfig
from headwise.config.experiment import LanguageModelConfig
from headwise.data.examples import Examples
from headwise.errors import UserError
from headwise.models.ngram import NgramConfig
from headwise.models.transformer import TransformerConfig
from headwise.tasks.language import Language
from headwise.text import BOS, EOS
from headwise.text.listed import Characters
from headwise.text.tokenisers import Tokenisers

TEXT = "to be or not to be, that is the question: whether it is nobler to be or not to be "


def task(letters, context):
    tokeniser = Characters(sorted(set(letters)))
    return Language(LanguageModelConfig(context=context), Tokenisers(tokeniser, tokeniser))


def direct(model, ids):
    """-log P of a whole document in one pass."""
    log_p = model(torch.tensor([[BOS, *ids]])).log_softmax(-1)[0]
    return -float(log_p[range(len(ids) + 1), [*ids, EOS]].sum())


@pytest.mark.parametrize("context", [6, 8, 1000])
def test_overlapping_blocks_score_a_long_text_as_a_whole_would_be(context):
    language = task(TEXT, context)
    model = language.build(NgramConfig(order=3))
    ids = language.tokenisers.target.encode(TEXT)
    language.teach(model, Examples.of([([], ids[:40])]))
    perplexity, nats = language.evaluate(model, [("", TEXT)]).scores
    truth = direct(model, ids)
    assert perplexity.value == pytest.approx(exp(truth / (len(ids) + 1)), rel=1e-4)
    assert nats.value == pytest.approx(truth / len(TEXT), rel=1e-4)


def test_several_texts_are_scored_each_from_its_beginning():
    language = task("abc", 16)
    model = language.build(TransformerConfig(width=16, heads=2, decoder={"depth": 1}, dropout=0.0)).eval()
    texts = ["abc", "a", "cabbac"]
    rows = [language.tokenisers.target.encode(text) for text in texts]
    nll, counts = language.likelihoods(model, Examples.of([([], row) for row in rows]), stride=16)
    with torch.inference_mode():
        assert nll == pytest.approx([direct(model, row) for row in rows], rel=1e-4)
    assert counts.tolist() == [4, 2, 7]


@pytest.mark.parametrize("model", ["transformer-tiny", "lstm-tiny"])
def test_it_goes_on_with_what_it_has_learnt(learn, tmp_path, model):
    (tmp_path / "text").write_text("abcd" * 300)
    data = {"train": str(tmp_path / "text"), "format": "text"}
    run = learn({"kind": "language-model", "context": 16}, data, "characters", {"kind": model}, batch_size=16)
    [[way]] = run.generate(["cd"], max_ratio=0, extra=6)
    assert way.text == "cdabcdab"
    perplexity, nats = run.evaluate().scores
    assert perplexity.value < 1.5 and nats.value == pytest.approx(log(perplexity.value) * 61 / 60)


def test_one_side_needs_one_tokeniser(tmp_path):
    data = DataConfig(train=str(tmp_path / "text"), format="text", cache=str(tmp_path))
    with pytest.raises(UserError, match="a language model has one side"):
        Language.prepare(data, CharactersConfig(target="words"))
    (tmp_path / "text").write_text("long " * 500)
    prepared = Language.prepare(data, CharactersConfig())
    assert prepared.tokenisers.shared and np.asarray(prepared.train.lengths)[0, 1] > 512  # cut later, not left out
