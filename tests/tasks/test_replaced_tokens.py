"""Replaced token detection: the loss of both networks, what they share, and that a discriminator learns."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import headwise
from headwise import UserError
from headwise.data.examples import Examples
from headwise.experiment.config import parse_experiment
from headwise.experiment.run import train_experiment
from headwise.models.bert import BertConfig
from headwise.models.ngram import NgramConfig
from headwise.tasks.replaced_tokens import (
    ReplacedTokenDetector,
    ReplacedTokens,
    ReplacedTokensConfig,
    generator_config,
    restore_originals,
)
from headwise.testing import assert_parity
from headwise.text import EOS, PAD
from headwise.text.tokenisers import Tokenisers
from headwise.text.vocabulary import Words
from headwise.train.config import TrainConfig

WORDS = Words([f"w{number}" for number in range(20)])
TINY = BertConfig(width=16, heads=4, depth=2, dropout=0.0, positions={"kind": "learned", "max_length": 32})


def made(**settings: Any) -> tuple[ReplacedTokens, ReplacedTokenDetector]:
    torch.manual_seed(0)
    task = ReplacedTokens(ReplacedTokensConfig(context=16, **settings), Tokenisers(WORDS, WORDS))
    return task, task.build(TINY)


def a_batch() -> tuple[torch.Tensor, torch.Tensor]:
    ids = torch.tensor([[5, 6, 7, 8, 9, EOS], [10, 11, 12, EOS, PAD, PAD]])
    return ids, torch.tensor([1, 3, 6 + 2])


def test_the_loss_is_the_papers() -> None:
    """mean over hidden words of the generator's loss + λ mean over tokens of the discriminator's."""
    _, model = made()
    ids, positions = a_batch()
    torch.manual_seed(1)
    loss = model(ids, positions, 7.0)
    torch.manual_seed(1)
    corrupted = model.corrupt(ids, positions, model.encode_masked(ids, positions))
    masked = torch.tensor([[5, WORDS.size, 7, WORDS.size, 9, EOS], [10, 11, WORDS.size, EOS, PAD, PAD]])
    guessed = F.cross_entropy(model.generator(masked)[masked == WORDS.size], torch.tensor([6, 8, 12]))
    real = ids != PAD
    judged = F.binary_cross_entropy_with_logits(model(corrupted)[real], (corrupted != ids)[real].float())
    assert loss.count == real.sum() == 10
    torch.testing.assert_close(loss.total / loss.count, guessed + 7 * judged)
    torch.testing.assert_close(loss.nll / loss.count, judged)


def test_a_sample_that_equals_the_original_counts_as_original() -> None:
    _, model = made()
    ids, positions = a_batch()
    with torch.no_grad():
        model.generator.head.bias.zero_()
        model.generator.head.bias[6] = 1e4  # the generator always says 6, which is right in one of three places
    corrupted = model.corrupt(ids, positions, model.encode_masked(ids, positions))
    assert (corrupted != ids).tolist() == [
        [False, False, False, True, False, False],
        [False, False, True] + 3 * [False],
    ]
    assert torch.equal(corrupted.where(corrupted == ids, 6), corrupted)
    logits, real = model(corrupted), ids != PAD
    labels = torch.zeros_like(logits)
    labels[0, 3] = labels[1, 2] = 1.0
    expected = F.binary_cross_entropy_with_logits(logits[real], labels[real], reduction="sum")
    torch.testing.assert_close(model(ids, positions).nll, expected)


def test_samples_are_drawn_from_the_generator_and_never_special() -> None:
    _, model = made()
    ids, positions = torch.full((4000, 1), 5), torch.arange(4000)
    x = model.encode_masked(ids[:1], positions[:1]).detach()
    with torch.no_grad():
        model.generator.head.bias[[PAD, EOS, WORDS.size]] = 50.0
        model.generator.head.bias[7] = 2.0
    drawn = model.corrupt(ids, positions, x.expand(4000, -1))
    logits = model.generator.head(x)[0]
    logits[[0, 1, 2, WORDS.size]] = -torch.inf
    assert drawn.min() > EOS and drawn.max() < WORDS.size
    assert (drawn == 7).float().mean().item() == pytest.approx(logits.softmax(-1)[7].item(), abs=0.04)


def test_the_discriminator_does_not_teach_the_generators_layers() -> None:
    gradients = []
    for weight in (1.0, 50.0):
        _, model = made()
        torch.manual_seed(2)
        model(*a_batch(), weight).total.backward()
        gradients.append([p.grad.clone() for p in model.generator.encoder.stack.parameters()])
        assert model.encoder.stack.layers[0].parts[0].out.weight.grad.any()
    for first, second in zip(*gradients, strict=True):
        assert_parity(second, first)
    assert any(gradient.any() for gradient in gradients[0])


def test_embeddings_are_shared_and_the_generator_is_narrower() -> None:
    _, model = made()
    ours, theirs = model.encoder.embed, model.generator.encoder.embed
    assert theirs.table is ours.table and model.generator.head.table is ours.table
    assert theirs.positions is ours.positions and theirs.types is ours.types and theirs.norm is ours.norm
    config = generator_config(TINY, 0.25)
    assert (config.width, config.heads, config.hidden, config.embedding_width) == (4, 1, 16, 16)
    assert model.generator.encoder.stack.layers[0].parts[0].out.weight.shape == (4, 4)
    names = dict(model.named_parameters())
    assert "encoder.embed.table.weight" in names and "generator.encoder.embed.table.weight" not in names


def test_only_layers_can_be_narrower() -> None:
    with pytest.raises(UserError, match="has no layers that a generator could have narrower"):
        generator_config(NgramConfig(), 0.25)


def test_the_hidden_words_of_a_batch_are_put_back() -> None:
    task, _ = made(mask_rate=0.4)
    rows = [[random.Random(n).randrange(4, WORDS.size) for _ in range(10)] for n in range(8)]
    data = task.build_batches(Examples.from_rows([([], row) for row in rows]), 1, TrainConfig(steps=1, batch_size=8))
    batch = data.batch(data.plan(0)[0])
    restored = [tuple(row[row > EOS].tolist()) for row in restore_originals(batch)]
    assert sorted(restored) == sorted(map(tuple, rows)) and len(batch.positions) == 8 * 4


def list_words(start: int) -> list[str]:
    """A sentence in which each word follows from the one before."""
    return [f"w{(start + step) % 12}" for step in range(10)]


# each has one word that does not belong, the sixth
REPLACED = [" ".join([*words[:5], f"w{start}", *words[6:]]) for start in range(12) for words in [list_words(start)]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A discriminator of sentences in which each word follows from the one before."""
    folder = tmp_path_factory.mktemp("electra")
    draw = random.Random(0)
    lines = [" ".join(list_words(draw.randrange(12))) for _ in range(600)]
    (folder / "lines.txt").write_text("\n".join(lines))
    tables = {
        "name": "run", "task": {"kind": "replaced-tokens", "context": 16},
        "data": {"train": str(folder / "lines.txt"), "format": "lines", "cache": str(folder / "cache")},
        "tokeniser": "words", "model": {"kind": "transformer-tiny", "wiring": "pre", "dropout": 0.0},
        "train": {
            "steps": 300, "batch_size": 32, "threads": 1, "label_smoothing": 0.0, "samples": 2,
            "schedule": {"kind": "constant", "lr": 0.003},
        },
    }  # fmt: skip
    made, _ = train_experiment(parse_experiment(tables), folder / "runs")
    return made.path


def test_it_learns_what_does_not_belong(run: Path) -> None:
    loaded = headwise.load(run)
    scores = {score.name: score for score in loaded.evaluate().scores}
    assert list(scores) == ["accuracy", "F1", "precision", "recall"]
    assert scores["F1"].low > 20  # chance is 0: nine tokens in ten are original
    assert scores["F1"].low <= scores["F1"].value <= scores["F1"].high
    assert loaded.evaluate().scores == loaded.evaluate().scores
    judged = loaded.task.detect_replaced(loaded.model, REPLACED)
    assert [[each.word for each in words] for words in judged] == [text.split() for text in REPLACED]
    probabilities = np.array([[each.probability for each in words] for words in judged])
    replaced, kept = probabilities[:, 5], np.delete(probabilities, 5, axis=1)
    assert np.median(replaced) > 0.5 > 2 * np.median(kept)
    assert (replaced[:, None] > kept).mean() > 0.8  # chance is a half


def test_long_texts_are_judged_in_blocks(run: Path) -> None:
    loaded = headwise.load(run)
    text = " ".join(f"w{number % 12}" for number in range(50))
    (judged,) = loaded.task.detect_replaced(loaded.model, [text])
    assert [each.word for each in judged] == text.split()
    assert loaded.task.detect_replaced(loaded.model, [""]) == [[]]


def test_samples_show_what_was_replaced_and_found(run: Path) -> None:
    from headwise.runs import Run

    rows = [row["samples"] for row in Run.open(run).metrics.rows() if "samples" in row]
    assert len(rows[-1]) == 2 and set(rows[-1][0]) == {"source", "output", "reference"}


def test_the_command_marks_words(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from headwise.cli.main import main

    loaded = headwise.load(run)
    judged = loaded.task.detect_replaced(loaded.model, REPLACED)
    found = max(range(len(REPLACED)), key=lambda number: judged[number][5].probability)
    text, word = REPLACED[found], REPLACED[found].split()[5]
    main(["detect-replaced", str(run), text])
    assert f"[{word} " in capsys.readouterr().out
    main(["detect-replaced", str(run), text, "--json"])
    printed = json.loads(capsys.readouterr().out)["words"][5]
    assert printed["word"] == word and printed["probability"] == pytest.approx(judged[found][5].probability, abs=1e-3)


def test_the_encoder_begins_a_classifier(run: Path, tmp_path: Path) -> None:
    (tmp_path / "labels.tsv").write_text("".join(f"w{n % 12} w{(n + 1) % 12}\t{'ab'[n % 2]}\n" for n in range(40)))
    tables = {
        "task": "classify", "init_from": str(run), "train": {"steps": 1, "threads": 1, "batch_size": 8},
        "data": {"train": str(tmp_path / "labels.tsv"), "cache": str(tmp_path / "cache")}, "name": "tuned",
    }  # fmt: skip
    told: list[str] = []
    train_experiment(parse_experiment(tables), tmp_path / "runs", announce=told.append)
    taken = next(line for line in told if "tensors loaded" in line)
    assert "unused: " in taken and "generator" in taken and "encoder" not in taken.partition("unused")[0]
