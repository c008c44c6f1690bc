"""Language modelling: what a text is scored at, and what goes on with it."""

from dataclasses import replace
from math import exp, log

import numpy as np
import pytest
import torch

from headwise.catalog import MODELS
from headwise.config.base import validate
from headwise.data.config import TextDataConfig
from headwise.data.examples import Examples
from headwise.errors import UserError
from headwise.models.ngram import NgramConfig
from headwise.models.transformer import TransformerConfig
from headwise.tasks.language_model import LanguageModelConfig, LanguageModelTask
from headwise.text import BOS, EOS
from headwise.text.config import CharactersConfig
from headwise.text.tokenisers import Tokenisers
from headwise.text.vocabulary import Characters
from headwise.train.config import TrainConfig

TEXT = "to be or not to be, that is the question: whether it is nobler to be or not to be "


def task(letters, context):
    tokeniser = Characters(sorted(set(letters)))
    return LanguageModelTask(LanguageModelConfig(context=context), Tokenisers(tokeniser, tokeniser))


def direct(model, ids):
    """-log P of a whole document in one pass."""
    log_p = model(torch.tensor([[BOS, *ids]])).log_softmax(-1)[0]
    return -float(log_p[range(len(ids) + 1), [*ids, EOS]].sum())


@pytest.mark.parametrize("context", [6, 8, 1000])
def test_overlapping_blocks_score_a_long_text_as_a_whole_would_be(context):
    language = task(TEXT, context)
    model = language.build(NgramConfig(order=3))
    ids = language.tokenisers.target.encode(TEXT)
    language.fit_model(model, Examples.from_rows([([], ids[:40])]))
    perplexity, nats = language.evaluate(model, [("", TEXT)]).scores
    truth = direct(model, ids)
    assert perplexity.value == pytest.approx(exp(truth / (len(ids) + 1)), rel=1e-4)
    assert nats.value == pytest.approx(truth / len(TEXT), rel=1e-4)


def test_several_texts_are_scored_each_from_its_beginning():
    language = task("abc", 16)
    model = language.build(TransformerConfig(width=16, heads=2, decoder={"depth": 1}, dropout=0.0)).eval()
    texts = ["abc", "a", "cabbac"]
    rows = [language.tokenisers.target.encode(text) for text in texts]
    nll, counts = language.compute_nll(model, Examples.from_rows([([], row) for row in rows]), stride=16)
    with torch.inference_mode():
        assert nll == pytest.approx([direct(model, row) for row in rows], rel=1e-4)
    assert counts.tolist() == [4, 2, 7]


@pytest.mark.parametrize("model", ["transformer-tiny", "lstm-tiny"])
def test_it_goes_on_with_what_it_has_learnt(learn, tmp_path, model):
    (tmp_path / "text").write_text("abcd" * 300)
    data = {"train": str(tmp_path / "text"), "format": "text"}
    run = learn({"kind": "language-model", "context": 16}, data, "characters", {"kind": model}, batch_size=16)
    [[way]] = run.generate(["cd"], max_ratio=0, max_extra=6)
    assert way.text == "cdabcdab"
    perplexity, nats = run.evaluate().scores
    assert perplexity.value < 1.5 and nats.value == pytest.approx(log(perplexity.value) * 61 / 60)


def test_one_side_needs_one_tokeniser(tmp_path):
    data = TextDataConfig(train=str(tmp_path / "text"), format="text", cache=str(tmp_path))
    with pytest.raises(UserError, match="a language model has one side"):
        LanguageModelTask.prepare(data, CharactersConfig(target="words"))
    (tmp_path / "text").write_text("long " * 500)
    prepared = LanguageModelTask.prepare(data, CharactersConfig())
    assert prepared.tokenisers.shared and np.asarray(prepared.train.lengths)[0, 1] > 512  # cut later, not left out


PACKED = ["abc", "", "cabbac", "b", "abcabcabcabcabc", "c"]


def test_packed_texts_cost_as_much_as_alone():
    language = task("abc", 16)
    tokenisers = language.tokenisers
    packing = LanguageModelTask(LanguageModelConfig(context=16, packing=True), tokenisers)
    model = packing.build(TransformerConfig(width=16, heads=2, decoder={"depth": 2}, dropout=0.0))
    rows = [tokenisers.target.encode(text) for text in PACKED]
    data = packing.build_batches(Examples.from_rows([([], row) for row in rows]), 1, TrainConfig(steps=1, batch_size=8))
    [numbers] = data.plan(0)
    batch = data.batch(numbers)
    assert len(batch) == 2 and batch.tokens == batch.ids.numel() == 32
    with torch.no_grad():
        alone = sum(direct(model, row) for row in rows)
        packed, mixed = (
            packing.loss(model, each, packing.init_state(model))
            for each in (batch, replace(batch, segment=None, pos=None))
        )
    assert float(packed.total) == pytest.approx(alone, rel=1e-5) and int(packed.count) == 32
    assert float(mixed.total) != pytest.approx(alone, rel=1e-3)


@pytest.mark.parametrize("table", [{"packing": True}, {"order": "stream"}])
def test_it_learns_from_packed_rows_and_streams(learn, tmp_path, table):
    (tmp_path / "a.txt").write_text("\n".join("abcdefgh"[: 2 + number % 7] for number in range(400)))
    data = {"train": str(tmp_path / "*.txt"), "format": "lines", "valid": str(tmp_path / "a.txt")}
    kind = {"kind": "language-model", "context": 24, **table}
    run = learn(kind, data, "characters", {"kind": "transformer-tiny"}, batch_size=4, steps=80)
    [[way]] = run.generate(["ab"], max_ratio=0, max_extra=20)
    assert "abcdefgh".startswith(way.text) and len(way.text) > 2


def test_packing_needs_attention_and_no_stream():
    packing = LanguageModelTask(LanguageModelConfig(packing=True), task("abc", 16).tokenisers)
    with pytest.raises(UserError, match=r"task.packing: Recurrent of 'lstm' would mix the texts that share a row"):
        packing.build(MODELS.parse({"kind": "lstm", "width": 8}))
    with pytest.raises(UserError, match="a stream has no padding"):
        validate(LanguageModelConfig, {"packing": True, "order": "stream"})
