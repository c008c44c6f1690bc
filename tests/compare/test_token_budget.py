"""`train.tokens` ends a run after so many target tokens, also when it is resumed between two rows of metrics, and
`train.flops` after the tokens that cost so much."""

from types import SimpleNamespace

import pytest
import torch

from headwise import UserError, load
from headwise.compare.config import ComparisonConfig
from headwise.compare.worker import count_costs
from headwise.experiment.run import count_training_flops, resume, train_experiment
from headwise.models.summary import TRAINING_PASSES


def test_a_token_budget_is_exact_and_survives_a_stop(config: ComparisonConfig, tmp_path):
    base = config.build_experiment(config.arm[1], seed=1)

    def budget(**changes):
        return base.replace(train=base.train.replace(**{"steps": 0, "tokens": 1000, "log_every": 1000} | changes))

    whole, result = train_experiment(budget(), tmp_path / "whole")
    tokens = whole.state["tokens"]
    assert result.reason == "tokens"
    one_less, _ = train_experiment(budget(tokens=0, steps=result.step - 1), tmp_path / "less")
    assert one_less.state["tokens"] < 1000 <= tokens

    stopped, _ = train_experiment(budget(steps=3), tmp_path / "stopped")
    file = stopped.path / "config.toml"
    file.write_text(file.read_text().replace("\nsteps = 3\n", "\nsteps = 0\n"))
    (stopped.path / "manifest.json").unlink()
    _, again = resume(stopped.path)
    assert (again.reason, again.step, stopped.state["tokens"]) == ("tokens", result.step, tokens)


def test_a_budget_of_flops_is_one_of_tokens_by_the_cost_of_a_token(config: ComparisonConfig, tmp_path):
    base = config.build_experiment(config.arm[1], seed=1)
    run, result = train_experiment(
        base.replace(train=base.train.replace(steps=0, minutes=0.0, flops=2e8, log_every=1000)), tmp_path / "flops"
    )
    trained = load(run.path)
    parameters, per_token = count_costs(trained)
    assert parameters and per_token and result.reason == "flops"
    spent = TRAINING_PASSES * per_token * run.state["tokens"]
    assert run.state["flops"] == spent
    assert 2e8 <= spent < 2e8 * 1.2
    assert run.config["train"]["flops"] == 2e8 and run.config["train"]["tokens"] == 0  # as written


def test_a_model_whose_flops_cannot_be_counted_is_refused_a_budget_of_flops(config: ComparisonConfig, tmp_path):
    base = config.build_experiment(config.arm[1], seed=1)
    task = SimpleNamespace(build=lambda model: torch.nn.Linear(2, 2), image=())
    with pytest.raises(UserError, match=r"train.flops: the FLOPs of 'transformer' cannot be counted .*; use train.tok"):
        count_training_flops(base.replace(train=base.train.replace(flops=1.0)), task)
