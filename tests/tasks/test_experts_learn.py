"""Experts while they learn: their losses reach the gradient, their loads the metrics, whatever the task."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
import torch

import headwise
from headwise import UserError
from headwise.blocks.losses import Loss
from headwise.blocks.record import collect
from headwise.cli.main import main
from headwise.inspect.expert_load import draw_expert_load, format_table, measure_expert_load
from headwise.runs import Run
from headwise.tasks.base import GenerationState, generation_loss
from headwise.train.config import TrainConfig
from headwise.train.learner import Learner
from headwise.train.state import LossState

EXPERTS = {"count": 4, "drop": True}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A small Switch T5 that has learnt what is missing in a circle of letters."""
    from headwise.experiment.config import parse_experiment
    from headwise.experiment.load import load
    from headwise.experiment.run import train_experiment

    folder = tmp_path_factory.mktemp("switch")
    draw, circle = random.Random(0), "abcdef" * 5
    ends = [(start, start + draw.randint(10, 24)) for start in draw.choices(range(6), k=400)]
    (folder / "text").write_text("\n".join(circle[start:end] for start, end in ends))
    tables = {
        "name": "switch", "task": {"kind": "denoise", "context": 24, "noise_density": 0.3, "mean_span": 2},
        "data": {"train": str(folder / "text"), "format": "lines", "cache": str(folder / "cache")},
        "tokeniser": "characters", "model": {"kind": "switch-tiny", "dropout": 0.0, "experts": EXPERTS},
        "train": {
            "steps": 100, "batch_size": 32, "validate_every": 100, "log_every": 25, "label_smoothing": 0.0,
            "threads": 1, "schedule": {"lr": 0.01, "warmup": 10},
        },
    }  # fmt: skip
    path = train_experiment(parse_experiment(tables), folder / "runs")[0].path
    return path, load(path)


def test_a_switch_t5_learns(run: Any) -> None:
    [perplexity] = run[1].evaluate().scores
    assert perplexity.high < 6  # a guess by frequency has ten


def test_loads_are_in_the_metrics_and_losses_in_the_loss(run: Any) -> None:
    rows = [row for row in Run.open(run[0]).metrics.rows() if "loss" in row]
    for row in rows:
        assert row["load"]["busiest"] >= 1 and 0 <= row["load"]["evenness"] <= 1 and 0 <= row["load"]["dropped"] < 1
        assert 0.019 < row["loss"] - row["nll"] < 0.08  # two layers, 0.01 each where loads are even
    assert len(rows) == 4 and rows[-1]["load"]["evenness"] > 0.6


def test_loads_of_the_validation_part_are_shown(run: Any, tmp_path: Any, capsys: Any) -> None:
    found = measure_expert_load(run[1])
    assert list(found) == ["encoder-2", "decoder-2"]
    assert found["encoder-2"].assigned.shape == (4,) and int(found["encoder-2"].assigned.sum()) > 100
    assert sum(found["decoder-2"].shares) == pytest.approx(1)
    assert [line.split()[0] for line in format_table(found).splitlines()] == ["layer", "encoder-2", "decoder-2"]
    assert "encoder-2" in draw_expert_load(found, "switch").to_svg()
    capsys.readouterr()
    main(["inspect", str(run[0]), "--experts", "--json", "--out", str(tmp_path / "load.png")])
    shown = json.loads(capsys.readouterr().out)
    assert len(shown["encoder-2"]["shares"]) == 4 and (tmp_path / "load.png").read_bytes()[:4] == b"\x89PNG"


def test_a_model_without_experts_has_no_load(run: Any) -> None:
    from dataclasses import replace

    with pytest.raises(UserError, match="has no experts"):
        measure_expert_load(replace(run[1], model=headwise.build("t5-tiny", vocab=9)))


class Batch:
    tokens = 8

    def to(self, device: Any) -> Batch:
        return self


class Copying:
    """A task that copies a text."""

    def init_state(self, model: Any) -> GenerationState:
        return GenerationState.of(model)

    def loss(self, model: Any, batch: Batch, state: LossState) -> Loss:
        ids = torch.tensor([[4, 5, 6, 7], [7, 6, 5, 4]])
        return generation_loss(model, ids, ids, labels=ids, label_smoothing=0.0, state=state)


def gradient(balance: float, batches: int, **settings: Any) -> tuple[torch.Tensor, float]:
    """The router's gradient over `batches`, before it is clipped or scaled, and the loss that was told."""
    torch.manual_seed(0)
    experts = {"count": 4, "jitter": 0.0, "balance_loss": balance, "drop": False}
    model = headwise.build("switch-tiny", vocab=9, dropout=0.0, hidden_dropout=0.0, experts=experts, **settings)
    learner = Learner(
        model, Copying(), TrainConfig(steps=1, clip_norm=0.0, schedule={"kind": "constant", "lr": 1e-12}), 0
    )
    found: list[torch.Tensor] = []
    router = model.encoder.stack.layers[1].parts[1].router.weight
    router.register_post_accumulate_grad_hook(lambda weight: found.append(weight.grad.clone()))
    learner.step([Batch()] * batches, 1, 0.0)
    return found[-1], float(learner.sums[0] / learner.sums[2])


def test_losses_of_routers_count_once_however_many_batches_make_an_update() -> None:
    """The sums are divided by the tokens: then the mean loss has alpha times each layer's loss, once."""
    (plain, without), (once, told), (twice, again) = gradient(0.0, 1), gradient(0.5, 1), gradient(0.5, 2)
    assert not torch.equal(plain, once)
    torch.testing.assert_close(twice / 16, once / 8)
    assert told == pytest.approx(again)
    assert 2 * 0.5 * 0.9 < told - without < 2 * 0.5 * 4


def test_losses_of_routers_are_heard_through_another_collector() -> None:
    """Hard attention is taught by what it reports, inside of what the learner listens to."""
    torch.manual_seed(0)
    hard = {"kind": "attention", "score_mods": ["hard"]}
    model = headwise.build("transformer-tiny", vocab=9, mixer=hard, feedforward={"kind": "experts"})
    with collect("aux", "load") as side:
        Copying().loss(model, Batch(), GenerationState.of(model))
    assert len(side.list_values("aux")) == len(side.list_values("load")) == 4


def test_a_resumed_run_ends_with_the_same_bits(tmp_path: Any) -> None:
    from headwise.train.loop import train

    class Data:
        def plan(self, epoch: int) -> list[Any]:
            return [torch.arange(2).numpy()] * 3

        def batch(self, numbers: Any) -> Batch:
            return Batch()

    def trained(name: str, *steps: int) -> dict[str, torch.Tensor]:
        for end in steps:
            path = tmp_path / name
            folder = Run.open(path) if path.exists() else Run.create(path, {})
            torch.manual_seed(0)
            model = headwise.build("switch-tiny", vocab=9, experts={"count": 4})
            config = TrainConfig(steps=end, threads=1, schedule={"kind": "constant", "lr": 0.01})
            train(folder, model, Copying(), Data(), config, seed=3)
        return model.state_dict()

    at_once, resumed = trained("one", 6), trained("two", 3, 6)
    assert all(torch.equal(tensor, resumed[name]) for name, tensor in at_once.items())
