"""Masked language modelling: what is built, what is learnt, how it is scored and asked."""

import random
from math import log
from shutil import rmtree

import numpy as np
import pytest
import torch

from headwise.data.examples import Examples
from headwise.errors import UserError
from headwise.experiment.config import Experiment, parse_experiment
from headwise.experiment.run import resume, train_experiment
from headwise.models.bert import AlbertConfig, BertConfig
from headwise.models.t5 import T5Config
from headwise.models.transformer import TransformerConfig
from headwise.runs.checkpoint import load_weights
from headwise.tasks.mask_filling import encode_masked
from headwise.tasks.masked import Masked, MaskedConfig
from headwise.text.tokenisers import Tokenisers
from headwise.text.vocabulary import Characters, Words

LETTERS = Characters("abcdefgh ")
TINY = {"width": 16, "heads": 2, "dropout": 0.0}


def task(config=None, tokeniser=LETTERS):
    return Masked(config or MaskedConfig(context=16), Tokenisers(tokeniser, tokeniser))


@pytest.mark.parametrize(
    "model",
    [
        BertConfig(**TINY, depth=1),
        AlbertConfig(**TINY, depth=2, embedding_width=8),
        TransformerConfig(**TINY, encoder={"depth": 1}),
        T5Config(**TINY, encoder={"depth": 1}),
    ],
    ids=lambda model: model.kind,
)
def test_any_encoder_can_be_asked_for_its_loss_and_its_guesses(model):
    masked = task(MaskedConfig(context=16).for_model(model))
    built = masked.build(model)
    assert built.mask_id == LETTERS.size
    data = Examples.from_rows([([], LETTERS.encode(text)) for text in ("abc def", "hag cab " * 5, "", "b")])
    batches = masked.build_batches(data, 1, resolved_train())
    loss = masked.loss(built, batches.batch(batches.plan(0)[0]), masked.init_state(built))
    assert torch.isfinite(loss.total) and loss.count > 0
    scores = masked.validate(built, data, [])
    assert scores == masked.validate(built, data, [])  # the same words are hidden every time
    assert scores["nll"] == pytest.approx(log(LETTERS.size + 1), rel=0.6)
    assert ("next_sentence" in scores) == (model.kind in ("bert", "albert"))


def resolved_train():
    return parse_experiment({"data": {"train": "x"}, "train": {"steps": 1, "batch_size": 4}}).train


def test_batches_of_other_sizes_do_not_change_the_likelihood_of_the_same_guesses():
    masked = task()
    model = masked.build(TransformerConfig(**TINY, encoder={"depth": 1})).eval()
    found = masked.sum_masked(model, Examples.from_rows([([], LETTERS.encode("abc def gab"))]))
    data = masked._masking(Examples.from_rows([([], LETTERS.encode("abc def gab"))]), seed=0)
    batch = data.batch(data.cut_tiles())
    with torch.inference_mode():
        loss = model(batch.ids, labels=batch.labels)
    assert float(loss.nll) == pytest.approx(float(found.nll.sum()), rel=1e-5) and int(loss.count) == found.counts.sum()


def test_pairs_are_left_to_the_model_unless_told():
    tables = {"task": "masked", "data": {"train": "x"}, "train": {"steps": 1}}
    for model, pairs in (("bert-tiny", True), ("transformer-tiny", False)):
        experiment = parse_experiment({**tables, "model": model})
        assert experiment.create_task(Tokenisers(LETTERS, LETTERS)).config.next_sentence is pairs
        assert Experiment.model_validate(experiment.model_dump(mode="json")) == experiment
        assert experiment.to_toml()
    with pytest.raises(UserError, match=r"model\.token_types"):
        task(MaskedConfig(next_sentence=True)).build(TransformerConfig(**TINY))


@pytest.fixture
def topics(tmp_path):
    """Each text repeats a word of its own: a hidden word follows from any other, and none is more frequent."""
    words = ["cat", "dog", "owl", "fox"]
    lines = [" ".join([word] * length) for word in words for length in range(6, 14)] * 6
    random.Random(0).shuffle(lines)
    (tmp_path / "topics.txt").write_text("\n".join(lines))
    return {"train": str(tmp_path / "topics.txt"), "valid": str(tmp_path / "topics.txt"), "format": "lines"}


def test_hidden_words_are_learnt_from_the_others(learn, topics):
    steps = {"steps": 200, "validate_every": 200, "schedule": {"lr": 0.003, "warmup": 10}}
    run = learn({"kind": "masked", "context": 16}, topics, "words", {"kind": "bert-tiny"}, **steps)
    perplexity, accuracy, follows = run.evaluate().scores
    assert accuracy.low > 60 > 100 / 4  # a guess by frequency
    assert perplexity.value < 2.5
    assert follows.name == "next sentence" and follows.low > 60  # 87.5 at most: some strangers have the same word
    text = "fox fox [MASK] fox [MASK]"
    (first, second), (alone,) = run.fill_mask([text, "[MASK] owl owl owl owl owl"], count=2)
    assert [ways[0].word for ways in (first, second, alone)] == ["fox", "fox", "owl"]
    assert first[0].probability > 0.5 > first[1].probability and len(first) == 2


@pytest.mark.parametrize("task", ["masked", "denoise"])
def test_a_resumed_run_ends_with_the_same_weights(topics, tmp_path, task):
    tables = {
        "task": {"kind": task, "context": 16}, "data": {**topics, "cache": str(tmp_path)}, "tokeniser": "words",
        "model": "transformer-tiny", "train": {"steps": 12, "checkpoint_every": 6, "batch_size": 32, "threads": 1},
    }  # fmt: skip
    run, _ = train_experiment(parse_experiment(tables), tmp_path / "runs")
    first = load_weights(run, "last")
    rmtree(run.checkpoint_path(12))
    resume(run.path)
    again = load_weights(run, "last")
    assert run.steps()[-1] == 12 and all(torch.equal(again[name], first[name]) for name in first)


def test_spaces_belong_to_words_but_are_letters_of_their_own():
    assert encode_masked("the [MASK]sat", Words(["the", "cat", "sat"]), [7]) == [4, 7, 6]
    assert encode_masked("a[MASK] b", LETTERS, [13]) == [*LETTERS.encode("a"), 13, *LETTERS.encode(" b")]


def test_marks_are_never_filled_in():
    words = task(tokeniser=Words(["cat", "sat"]))
    model = words.build(TransformerConfig(**TINY, encoder={"depth": 1}))
    with torch.no_grad():
        model.head.bias[[0, 1, 2, 3, 6]] = 50.0
    [[ways]] = words.fill_masks(model, ["cat [MASK]"], count=5)
    assert sorted(each.word for each in ways) == ["cat", "sat"]


def test_a_text_without_a_mask_is_refused():
    model = task().build(TransformerConfig(**TINY, encoder={"depth": 1}))
    with pytest.raises(UserError, match=r"there is no \[MASK\] in 'abc'"):
        task().fill_masks(model, ["a[MASK]", "abc"])
    with pytest.raises(UserError, match="no word to mask"):
        task().sum_masked(model, Examples.from_rows([([], np.array([], int))]))
