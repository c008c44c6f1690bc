"""Span corruption as a task: the vocabulary, what is learnt, and scores that stand still."""

import random

import pytest

from headwise.data.examples import Examples
from headwise.data.spans import SENTINELS
from headwise.errors import UserError
from headwise.experiment.config import parse_experiment
from headwise.models.t5 import T5Config
from headwise.tasks.denoise import Denoise, DenoiseConfig
from headwise.text.tokenisers import Tokenisers
from headwise.text.vocabulary import Characters

LETTERS = Characters("abcdef ")
T5 = T5Config(width=16, heads=2, head_width=8, hidden=32, dropout=0.0, encoder={"depth": 1}, decoder={"depth": 1})


@pytest.fixture
def denoise():
    return Denoise(DenoiseConfig(context=32), Tokenisers(LETTERS, LETTERS))


def test_sentinels_are_the_last_rows_of_one_table(denoise):
    model = denoise.build(T5)
    assert model.vocab == model.source_vocab == LETTERS.size + SENTINELS
    assert model.encoder.embed.table is model.decoder.embed.table


def test_validation_misses_the_same_spans_every_time(denoise):
    model = denoise.build(T5)
    examples = Examples.from_rows([([], LETTERS.encode(text)) for text in ("abc def " * 20, "fab", "", "d")])
    first, again = (denoise.validate(model, examples, []) for _ in range(2))
    assert first == again
    [perplexity] = denoise.evaluate(model, [("", "abc def " * 20)]).scores
    assert perplexity.name == "perplexity" and perplexity.low <= perplexity.value <= perplexity.high
    with pytest.raises(UserError, match="no word in the texts"):
        denoise.validate(model, Examples.from_rows([([], [])]), [])


def test_missing_spans_are_learnt(learn, tmp_path):
    draw = random.Random(0)
    circle = "abcdef" * 5
    ends = [(start, start + draw.randint(10, 24)) for start in draw.choices(range(6), k=400)]
    (tmp_path / "text").write_text("\n".join(circle[start:end] for start, end in ends))
    data = {"train": str(tmp_path / "text"), "format": "lines"}
    task = {"kind": "denoise", "context": 24, "noise_density": 0.3, "mean_span": 2}
    run = learn(
        task, data, "characters", {"kind": "t5-tiny"}, steps=80, validate_every=80, schedule={"lr": 0.01, "warmup": 10}
    )
    [perplexity] = run.evaluate().scores
    assert perplexity.high < 5  # a guess by frequency has ten
    (first, second), (alone,) = run.fill_mask(["abcde[MASK]cdefab[MASK]", "ab[MASK]f"], count=3)
    for ways in (first, second, alone):
        assert [way.probability for way in ways] == sorted((way.probability for way in ways), reverse=True)
        assert 0 < sum(way.probability for way in ways) <= 1 and len({way.word for way in ways}) == len(ways) <= 3


def test_a_model_without_a_decoder_is_refused():
    with pytest.raises(UserError, match="the model 'bert' cannot denoise"):
        parse_experiment({"task": "denoise", "model": "bert-tiny", "data": {"train": "x"}, "train": {"steps": 1}})
