"""Unknown words replaced through the alignment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import pad

import headwise
from headwise.config.base import validate
from headwise.decode.config import DecodeConfig
from headwise.decode.ensemble import Ensemble
from headwise.decode.hypothesis import Hypothesis
from headwise.decode.unk_replacement import align_unknown, replace_unknown
from headwise.errors import UserError
from headwise.experiment.config import parse_experiment
from headwise.inference.trained_model import TrainedModel
from headwise.models.encoder_decoder import EncoderDecoder
from headwise.text.tokenisers import Tokenisers
from headwise.text.vocabulary import Characters, Words

WORDS = Words(["ein", "hund", "sieht", "eine", "katze", "und", "den", "ball"])
SIDES = (WORDS, WORDS)
REPLACE = DecodeConfig(replace_unknown=True)
UNKNOWN = [Hypothesis((4, 3), 0.0, 0.0)]


@pytest.fixture(scope="module")
def copier() -> EncoderDecoder:
    return train_copier("luong-tiny", depth=1, steps=150)


def train_copier(kind: str, depth: int, steps: int) -> EncoderDecoder:
    """A model that has learnt to copy, unknown words as such."""
    torch.manual_seed(0)
    model = headwise.build(kind, vocab=12, depth=depth, dropout=0.0)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(steps):
        words = torch.randint(3, 12, (32, 5))
        source = pad(words, (0, 1), value=2)
        loss = model(source, pad(words, (1, 0), value=1), labels=source)
        optimizer.zero_grad()
        (loss.total / loss.count).backward()
        optimizer.step()
    return model.eval()


def build_trained_model(model: Any, **decode: Any) -> TrainedModel:
    tables = {"data": {"name": "demo"}, "model": {"kind": "luong-tiny"}, "train": {"steps": 1}, "decode": decode}
    return TrainedModel(model, Tokenisers(WORDS, WORDS), parse_experiment(tables))


TEXTS = ["ein Zwergspitz sieht den Igel", "und Igel katze Lurch ball", "ein hund sieht eine katze"]


def test_unknown_words_are_copied_from_the_source(copier: EncoderDecoder) -> None:
    plain = build_trained_model(copier).translate(TEXTS)
    assert plain == ["ein <unk> sieht den <unk>", "und <unk> katze <unk> ball", TEXTS[2]]
    assert build_trained_model(copier, replace_unknown=True).translate(TEXTS) == TEXTS
    assert build_trained_model(copier).translate(TEXTS, replace_unknown=True, beams=3, tokens_per_batch=1) == TEXTS


@pytest.mark.parametrize(("kind", "steps"), [("gnmt-tiny", 300), ("deep-att-tiny", 200)])
def test_deep_models_copy_unknown_words_with_penalties(kind: str, steps: int) -> None:
    trained = build_trained_model(train_copier(kind, depth=2, steps=steps))
    outputs = trained.translate(TEXTS, replace_unknown=True, beams=3, coverage_penalty=0.2, length_penalty=0.2)
    assert outputs == TEXTS


def test_a_dictionary_translates_unknown_words(copier: EncoderDecoder, tmp_path: Path) -> None:
    file = tmp_path / "names.tsv"
    file.write_text("Igel\thedgehog\nhund\tnever needed\n", encoding="utf-8")
    outputs = build_trained_model(copier, replace_unknown=True, dictionary=str(file)).translate(TEXTS)
    assert outputs == ["ein Zwergspitz sieht den hedgehog", "und hedgehog katze Lurch ball", TEXTS[2]]


def test_evaluation_replaces_unknown_words(copier: EncoderDecoder) -> None:
    pairs = [(text, text) for text in TEXTS]
    assert build_trained_model(copier, replace_unknown=True).evaluate(pairs).outputs == TEXTS


def test_the_last_cross_attention_of_a_transformer_aligns() -> None:
    model = headwise.build("transformer-tiny", vocab=12).eval()
    source, target = [5, 9, 7], (4, 3, 8)
    with torch.no_grad(), headwise.record() as maps:
        model(torch.tensor([[*source, 2]]), torch.tensor([[1, *target[:-1]]]))
    last = maps.select("decoder", 1)["decoder", 1, 1].mean(1)[0, :, :3]  # without the end mark
    assert align_unknown(model, [source, [5, 6, 7, 8, 9]], [target, (4, 3)])[0] == last.argmax(-1).tolist()


def test_an_empty_source_replaces_nothing(copier: EncoderDecoder) -> None:
    assert replace_unknown(copier, [""], [UNKNOWN], SIDES, REPLACE) == [["ein <unk>"]]


def test_errors_name_what_is_missing() -> None:
    deaf = headwise.build("sutskever-tiny", vocab=12).eval()
    with pytest.raises(UserError, match="this model has no cross-attention"):
        replace_unknown(deaf, ["ein Igel"], [UNKNOWN], SIDES, REPLACE)
    with pytest.raises(UserError, match="needs tokenisers of kind 'words'"):
        replace_unknown(deaf, ["ab"], [UNKNOWN], (Characters("ab"), WORDS), REPLACE)
    with pytest.raises(UserError, match="use a single run"):
        replace_unknown(Ensemble([deaf, deaf]), ["ein Igel"], [UNKNOWN], SIDES, REPLACE)
    with pytest.raises(UserError, match="set replace_unknown = true"):
        validate(DecodeConfig, {"dictionary": "names.tsv"})
    with pytest.raises(UserError, match=r"missing\.tsv"):
        replace_unknown(
            deaf, ["ein Igel"], [UNKNOWN], SIDES, DecodeConfig(replace_unknown=True, dictionary="missing.tsv")
        )
