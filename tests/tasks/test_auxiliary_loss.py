"""Fine-tuning of a decoder as GPT's of 2018: auxiliary language model loss, delimiter tokens, pairs in both orders."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.testing import assert_close
from transformers import OpenAIGPTConfig, OpenAIGPTDoubleHeadsModel

from headwise.catalog import find
from headwise.data.examples import Examples
from headwise.errors import UserError
from headwise.experiment.config import parse_experiment
from headwise.experiment.load import load
from headwise.experiment.run import train_experiment
from headwise.inference.attention_maps import collect_attention
from headwise.models.config import CLASSIFY_WITH_LM
from headwise.tasks.auxiliary_loss import DELIMITERS
from headwise.tasks.classify import Classify, ClassifyConfig
from headwise.tasks.regress import Regress, RegressConfig
from headwise.text.config import LabelsConfig, WordsConfig
from headwise.text.normalise import Normaliser
from headwise.text.tokenisers import Tokenisers
from headwise.train.config import TrainConfig
from headwise.train.state import LossState

VOCAB, LABELS = 30, 7
START, DELIMITER, EXTRACT = range(VOCAB, VOCAB + 3)
IDS = torch.tensor([[7, 8, 2, 9, 10, 11, 2], [12, 13, 2, 0, 0, 0, 0]])
INPUTS = torch.tensor([[START, 7, 8, DELIMITER, 9, 10, 11, EXTRACT], [START, 12, 13, EXTRACT, 0, 0, 0, 0]])


def configure(name, **settings):
    entry, size = find(name)
    return entry.configure(size, settings)


@pytest.fixture
def gpts():
    """GPT with two heads in `transformers`, and ours with its weights."""
    torch.manual_seed(0)
    config = OpenAIGPTConfig(
        vocab_size=VOCAB + 3, n_positions=16, n_embd=32, n_layer=2, n_head=4, initializer_range=0.3,
        summary_first_dropout=0.0,
    )  # fmt: skip
    theirs = OpenAIGPTDoubleHeadsModel(config).eval()
    theirs.multiple_choice_head.summary = torch.nn.Linear(32, LABELS)  # which has one output for each choice
    config = configure("gpt-tiny", positions={"kind": "learned", "max_length": 16})
    ours = config.build(VOCAB + DELIMITERS, LABELS, CLASSIFY_WITH_LM)
    ours.use_delimiters()
    copy_weights(theirs, ours.eval())
    return theirs, ours


@torch.no_grad()
def copy_weights(theirs, ours):
    def copy(new, old, transposed=False):
        new.weight.copy_(old.weight.T if transposed else old.weight)
        if getattr(new, "bias", None) is not None:
            new.bias.copy_(old.bias)

    body, embed = theirs.transformer, ours.encoder.embed
    embed.table.weight.copy_(body.tokens_embed.weight)
    embed.positions.table.copy_(body.positions_embed.weight)
    for layer, block in zip(ours.encoder.stack.layers, body.h, strict=True):
        attention, feedforward = layer.parts
        copy(attention.qkv.project, block.attn.c_attn, transposed=True)
        copy(attention.out, block.attn.c_proj, transposed=True)
        copy(feedforward.inner, block.mlp.c_fc, transposed=True)
        copy(feedforward.outer, block.mlp.c_proj, transposed=True)
        copy(layer.norms[0], block.ln_1)
        copy(layer.norms[1], block.ln_2)
    ours.head.table.weight.copy_(theirs.multiple_choice_head.summary.weight)
    ours.head.bias.copy_(theirs.multiple_choice_head.summary.bias)


def compute_theirs(theirs, inputs):
    """Logits of the label head, and the mean loss of the next tokens without padding."""
    last = (inputs != 0).sum(1) - 1
    outputs = theirs(
        inputs.unsqueeze(1), mc_token_ids=last.unsqueeze(1), labels=inputs.masked_fill(inputs == 0, -100).unsqueeze(1)
    )
    return outputs.mc_logits[:, 0], outputs.loss


def test_both_heads_are_those_of_transformers(gpts):
    theirs, ours = gpts
    logits, lm_loss = compute_theirs(theirs, INPUTS)
    outputs, loss = ours(IDS, language_model=True)
    assert_close(outputs, logits)
    assert_close(loss.total / loss.count, lm_loss)
    assert int(loss.count) == 7 + 3
    labels = torch.tensor([5, 4])
    label_loss, _ = ours(IDS, labels=labels, language_model=True)
    assert_close(label_loss.total, torch.nn.functional.cross_entropy(logits, labels, reduction="sum"))


def test_a_pair_in_both_orders_adds_the_vectors_before_the_head(gpts):
    theirs, ours = gpts
    ours.both_orders = True
    swapped = torch.tensor([[START, 9, 10, 11, DELIMITER, 7, 8, EXTRACT], [START, 12, 13, EXTRACT, 0, 0, 0, 0]])
    one, other = (compute_theirs(theirs, inputs)[0] for inputs in (INPUTS, swapped))
    assert_close(ours(IDS), one + other - theirs.multiple_choice_head.summary.bias)
    assert_close(ours(IDS), ours(torch.tensor([[9, 10, 11, 2, 7, 8, 2], [12, 13, 2, 0, 0, 0, 0]])))


def test_without_delimiters_the_inputs_are_those_of_a_classifier():
    config = configure("gpt2-tiny")
    plain, ours = config.build(VOCAB, LABELS, "classify").eval(), config.build(VOCAB, LABELS, CLASSIFY_WITH_LM).eval()
    assert not ours.load_state_dict(plain.state_dict(), strict=False).unexpected_keys
    assert_close(ours(IDS), plain(IDS))
    assert ours.language_model_head.table.weight is ours.encoder.embed.table.weight


@pytest.mark.parametrize("kind", ["transformer", "bart"])
def test_an_encoder_is_refused(kind):
    with pytest.raises(UserError, match="sees later tokens"):
        configure(f"{kind}-tiny").build(VOCAB, LABELS, CLASSIFY_WITH_LM)


def test_a_model_without_the_task_is_refused():
    with pytest.raises(UserError, match="'bert' cannot classify and language-model, it can masked"):
        parse_experiment({
            "task": {"kind": "classify", "auxiliary": 0.5}, "data": {"train": "a.tsv"}, "model": "bert-tiny",
            "train": {"steps": 1},
        })  # fmt: skip


def make_task(task_class, config, labels):
    tokenisers = Tokenisers.train(
        [("a b c", label) for label in labels], WordsConfig(shared=False, target=LabelsConfig()), Normaliser()
    )
    return task_class(config, tokenisers)


def make_batch(task):
    rows = [([5, 6], [4]), ([4], [5]), ([6, 6, 6], [4])]
    return task.build_batches(Examples.from_rows(rows), 0, TrainConfig(steps=1)).batch(np.arange(3))


@pytest.mark.parametrize(
    ("task_class", "config"), [(Classify, ClassifyConfig), (Regress, RegressConfig)], ids=["classify", "regress"]
)
def test_the_loss_is_that_of_the_task_plus_the_weighted_mean_over_tokens(task_class, config):
    model = configure("gpt-tiny", dropout=0.0)
    losses = {}
    for weight in (0.0, 0.5):
        task = make_task(task_class, config(auxiliary=weight, delimiters=True), ["1", "2"])
        torch.manual_seed(1)
        built, batch = task.build(model), make_batch(task)
        losses[weight] = task.loss(built, batch, LossState())
    _, language_model = built(batch.source, language_model=True)
    assert int(language_model.count) == (2 + 1 + 3) + 3
    expected = losses[0.0].total + 0.5 * 3 * language_model.total / language_model.count
    assert_close(losses[0.5].total, expected)
    assert_close(losses[0.5].nll, losses[0.0].nll)
    assert int(losses[0.5].count) == 3


def test_a_language_model_is_fine_tuned_with_delimiters(tmp_path, judged):
    """Two commands: a language model of the texts, then the classifier with the auxiliary loss."""
    texts = tmp_path / "texts.txt"
    texts.write_text("".join(line.split("\t")[0] + "\n" for line in Path(judged["train"]).read_text().splitlines()))
    train = {"batch_size": 32, "label_smoothing": 0.0, "threads": 1, "schedule": {"lr": 0.003, "warmup": 10}}
    cache = {"cache": str(tmp_path / "cache")}
    pretrained, _ = train_experiment(
        parse_experiment({
            "name": "lm", "task": {"kind": "language-model", "context": 16}, "tokeniser": "words",
            "data": {"train": str(texts), "valid": str(texts), "format": "lines", **cache},
            "model": {"kind": "gpt2-tiny", "dropout": 0.0}, "train": {**train, "steps": 20},
        }), tmp_path / "runs",
    )  # fmt: skip
    announced: list[str] = []
    run, _ = train_experiment(
        parse_experiment({
            "name": "fine", "init_from": str(pretrained.path), "data": {**judged, **cache},
            "task": {"kind": "classify", "auxiliary": 0.5, "delimiters": True}, "train": {**train, "steps": 80},
        }), tmp_path / "runs", announced.append,
    )  # fmt: skip
    assert any("newly initialised: head;" in line and "unused: nothing" in line for line in announced)
    loaded = load(run.path)
    assert [max(row, key=row.get) for row in loaded.classify(["a b good", "a not good", "c bad"])] == [
        "pos", "neg", "neg",
    ]  # fmt: skip
    maps = collect_attention(loaded.model, loaded.tokenisers, "a good")
    assert maps.source_tokens == ("<start>", "a", "good", "</s>")
