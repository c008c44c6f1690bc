"""Language models that recall what they read before: from batch to batch, over a kill, and in evaluation."""

from __future__ import annotations

import random
from math import log
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from headwise.data.examples import Examples
from headwise.models.transformer_xl import SIZES, TransformerXLConfig
from headwise.runs import Run
from headwise.runs.checkpoint import load_latest
from headwise.tasks.language_model import LanguageModelConfig, LanguageModelTask
from headwise.text import BOS, EOS
from headwise.text.tokenisers import Tokenisers
from headwise.text.vocabulary import Characters
from headwise.train.config import TrainConfig
from headwise.train.loop import train

TEXT = "to be or not to be, that is the question: whether it is nobler to be or not to be "
XL = TransformerXLConfig.model_validate({**SIZES["tiny"], "dropout": 0.0, "hidden_dropout": 0.0, "memory_length": 128})


def language(context: int, config: TransformerXLConfig = XL) -> LanguageModelTask:
    tokeniser = Characters(sorted(set(TEXT)))
    task = LanguageModelConfig(context=context).for_model(config)
    return LanguageModelTask(task, Tokenisers(tokeniser, tokeniser))


def built(task: LanguageModelTask) -> Any:
    torch.manual_seed(0)
    return task.build(XL)


def examples(task: LanguageModelTask, *texts: str) -> Examples:
    return Examples.from_rows([([], task.tokenisers.target.encode(text)) for text in texts])


def test_batches_of_a_stream_go_on_from_one_another() -> None:
    """The losses of an epoch's batches are those of one long row; the next epoch begins without a memory."""
    task = language(context=8)
    assert task.config.order == "stream"
    model = built(task).eval()
    data = task.build_batches(examples(task, TEXT), 1, TrainConfig(steps=1, batch_size=1))
    batches = [data.batch(numbers) for numbers in data.plan(0)]
    ids, labels = (torch.cat([getattr(batch, side) for batch in batches], 1) for side in ("ids", "labels"))
    with torch.no_grad():
        state = task.init_state(model)
        for _ in range(2):
            parts = [float(task.loss(model, batch, state).total) for batch in batches]
            assert sum(parts) == pytest.approx(float(model(ids, labels=labels).total), rel=1e-5)
    assert len(parts) > 5


def test_a_text_is_scored_from_all_that_was_read_of_it() -> None:
    task = language(context=8)
    model = built(task).eval()
    texts = ["to be", TEXT, "or not " * 3]
    nll, counts = task.compute_nll(model, examples(task, *texts), stride=4)
    rows = [task.tokenisers.target.encode(text) for text in texts]
    with torch.no_grad():
        whole = [
            -model(torch.tensor([[BOS, *ids]])).log_softmax(-1)[0].gather(1, torch.tensor([*ids, EOS])[:, None]).sum()
            for ids in rows
        ]
    assert nll.sum() == pytest.approx(float(sum(whole)), rel=1e-5)
    assert counts.sum() == sum(len(ids) + 1 for ids in rows) and max(counts) == 8


@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_run_that_was_killed_remembers(tmp_path: Path, accumulate: int) -> None:
    """Stopped and resumed within an epoch it ends with the same bits, memory included."""

    def fit(name: str, steps: int) -> Run:
        task = language(context=8)
        config = TrainConfig(
            threads=1, steps=steps, batch_size=2, accumulate=accumulate, schedule={"kind": "constant", "lr": 0.01}
        )
        path = tmp_path / name
        run = Run.open(path) if path.exists() else Run.create(path, {})
        train(run, built(task), task, task.build_batches(examples(task, TEXT * 4), 1, config), config, seed=3)
        return run

    once = fit("once", 6)
    fit("twice", 3)
    twice = fit("twice", 6)
    one, other = load_latest(once), load_latest(twice)
    assert one is not None and other is not None
    assert len(one.carried) == 3 and one.carried["decoder.0.0"].shape[1] > 0
    for part in ("model", "optimizer", "carried"):
        assert all(torch.equal(tensor, getattr(other, part)[name]) for name, tensor in getattr(one, part).items())


def test_what_stands_further_back_than_a_segment_is_learnt_by_recalling_it() -> None:
    """Five random letters, eight times: in segments of four nobody can do better than chance without a memory."""
    draw = random.Random(0)
    texts = ["".join(draw.choices("abeghinor", k=5)) * 8 for _ in range(300)]
    config = XL.replace(memory_length=4, depth=1)
    task = language(4, config)
    torch.manual_seed(0)
    model = task.build(config)
    data = task.build_batches(examples(task, *texts[20:]), 1, TrainConfig(steps=1, batch_size=16))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, fused=True)
    state = task.init_state(model)
    for numbers in [*data.plan(0), *data.plan(1)]:
        optimizer.zero_grad()
        loss = task.loss(model, data.batch(numbers), state)
        (loss.total / loss.count).backward()
        optimizer.step()
    nll, counts = task.compute_nll(model.eval(), examples(task, *texts[:20]), stride=4)
    assert nll.sum() / counts.sum() < 0.75 * log(9)


def test_without_a_memory_nothing_is_carried() -> None:
    task = language(context=8, config=XL.replace(memory_length=0))
    assert task.config.order == "shuffled"
    model = task.build(XL.replace(memory_length=0))
    data = task.build_batches(examples(task, TEXT), 1, TrainConfig(steps=1, batch_size=2))
    state = task.init_state(model)
    task.loss(model, data.batch(np.concatenate(data.plan(0))[:2]), state)
    assert model.memory_length == 0 and not state.carried
