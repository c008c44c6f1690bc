import math
import os
import signal
import time
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from headwise.errors import UserError
from headwise.runs import Run
from headwise.runs.checkpoint import load_latest, load_weights, read_checkpoint, restore
from headwise.train.config import OPTIMIZERS, TrainConfig
from headwise.train.loop import Metric, train
from headwise.train.state import LossState

CONFIG = TrainConfig(
    threads=1, steps=24, log_every=4, validate_every=8, accumulate=2, ema=0.5, schedule={"kind": "constant", "lr": 0.01}
)


def same(one: Run, other: Run) -> bool:
    """Whether the newest checkpoints are bit-identical: model, optimiser and moving average."""
    first, second = load_latest(one), load_latest(other)
    assert first is not None
    assert second is not None
    return all(
        getattr(first, part).keys() == getattr(second, part).keys()
        and all(torch.equal(tensor, getattr(second, part)[name]) for name, tensor in getattr(first, part).items())
        for part in ("model", "optimizer", "ema")
    )


@pytest.fixture
def fit(toy, tmp_path):
    """Train a new toy model in the run of that name; an existing run is resumed."""

    def fit(name="run", config=CONFIG, task=None, data=None, **how):
        path = tmp_path / name
        run = Run.open(path) if path.exists() else Run.create(path, {})
        torch.manual_seed(0)
        how.setdefault("validate", toy.validate)
        return run, train(run, toy.Model(), task or toy.Task(), data or toy.Data(), config, seed=7, **how)

    return fit


def task_that(toy, act):
    """The toy task; `act(call number, batch)` may return a factor of the loss."""
    calls = iter(range(1, 1_000_000))

    def loss(model, batch, state):
        found = toy.Task().loss(model, batch, state)
        factor = act(next(calls), batch)
        return SimpleNamespace(total=found.total * (factor or 1.0), nll=found.nll, count=found.count)

    return SimpleNamespace(loss=loss, init_state=toy.Task().init_state)


def test_training_learns_and_leaves_a_complete_run(fit):
    run, result = fit(config=CONFIG.replace(steps=80))
    assert (result.reason, result.step) == ("steps", 80)
    rows = run.metrics.rows()
    assert [row["step"] for row in rows if "loss" in row] == list(range(4, 81, 4))
    valid = [row["valid"]["nll"] for row in rows if "valid" in row]
    assert valid[-1] < 0.6 * valid[0]
    assert result.best == {"name": "nll", "value": min(valid), "step": 80}
    assert {"loss", "nll", "rate", "norm", "tokens_per_second", "minutes", "epoch"} <= rows[0].keys()


def test_each_example_is_seen_once_an_epoch(fit, toy):
    seen = Counter()

    class Counting(toy.Data):
        def batch(self, numbers):
            seen.update(numbers.tolist())
            return super().batch(numbers)

    _, result = fit(config=CONFIG.replace(steps=0, epochs=3), data=Counting(), validate=None)
    assert (result.reason, result.epoch) == ("epochs", 3)
    assert seen == dict.fromkeys(range(toy.EXAMPLES), 3)


def test_gradient_accumulation_weights_batches_by_their_tokens(toy, tmp_path):
    class Once(toy.Data):
        """One epoch-wide group cut into uneven batches."""

        def __init__(self, cuts):
            self.cuts = cuts

        def plan(self, epoch):
            return np.split(np.arange(toy.EXAMPLES), self.cuts)

    found = []
    for cuts in ([], [5, 6, 40]):
        torch.manual_seed(0)
        model = toy.Model()
        model.mix[2].p = 0.0
        config = CONFIG.replace(epochs=3, steps=0, accumulate=len(cuts) + 1, clip_norm=0.1)
        train(Run.create(tmp_path / str(len(cuts)), {}), model, toy.Task(), Once(cuts), config)
        found.append(model.embed.weight.detach())
    torch.testing.assert_close(*found, rtol=0, atol=1e-5)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("call", [10, 11])  # the first batch of the sixth group, and its second
def test_a_signal_saves_and_the_resumed_run_ends_with_the_same_bits(fit, toy, number, call):
    whole, _ = fit("whole")

    def stop(now, batch):
        if now == call:
            os.kill(os.getpid(), number)

    start = time.monotonic()
    run, result = fit("stopped", task=task_that(toy, stop))
    assert time.monotonic() - start < 10
    assert (result.interrupted, result.reason) == (True, number.name)
    assert result.step == (5 if call == 10 else 6)
    assert fit("stopped")[1].reason == "steps"
    assert same(run, whole)
    timed = ("minutes", "tokens_per_second")
    rows = [[{k: v for k, v in row.items() if k not in timed} for row in r.metrics.rows()] for r in (run, whole)]
    assert [row for row in rows[0] if row["step"] > 8] == [row for row in rows[1] if row["step"] > 8]


def test_a_signal_interrupts_a_long_validation_which_is_repeated_on_resuming(fit, toy):
    whole, _ = fit("whole")

    def long(model):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(30)

    run, result = fit("stopped", validate=long)
    assert (result.step, result.reason) == (8, "SIGTERM")
    assert not any("valid" in row for row in run.metrics.rows())
    fit("stopped")
    assert [row["step"] for row in run.metrics.rows() if "valid" in row] == [8, 16, 24]
    assert same(run, whole)


@pytest.mark.parametrize("optimizer", [*OPTIMIZERS.names, {"kind": "adafactor", "beta1": 0.9}], ids=str)
def test_a_run_of_every_optimizer_is_resumed_to_the_same_bits(fit, optimizer):
    config = CONFIG.replace(optimizer=optimizer)
    whole, _ = fit("whole", config)
    run, _ = fit("resumed", config.replace(steps=9))
    assert not same(run, whole)
    fit("resumed", config)
    assert same(run, whole)


RESTART = {"step": 24, "epoch": 6}  # where CONFIG ends


def test_a_run_that_is_trained_longer_at_a_constant_rate_equals_one_with_the_whole_budget(fit):
    whole, _ = fit("whole", CONFIG.replace(steps=36))
    run, first = fit("longer")
    _, result = fit("longer", CONFIG.replace(steps=36, restart=RESTART))
    assert (first.step, result.step, result.reason) == (24, 36, "steps")
    assert same(run, whole)


def test_an_extension_that_is_interrupted_is_resumed_to_the_same_bits(fit, toy):
    longer = CONFIG.replace(steps=36, restart=RESTART, schedule={"kind": "cosine", "lr": 0.01, "warmup": 4})
    for name in ("whole", "stopped"):
        fit(name)
    whole, _ = fit("whole", longer)

    def stop(now, batch):
        if now == 10:
            os.kill(os.getpid(), signal.SIGTERM)

    run, result = fit("stopped", longer, task=task_that(toy, stop))
    assert result.interrupted and 24 < result.step < 36
    assert fit("stopped", longer)[1].step == 36
    assert same(run, whole)
    rates = [row["rate"] for row in whole.metrics.rows() if "rate" in row and row["step"] > 24]
    shares = [(step - 1) / 12 for step in (4, 8, 12)]  # of the new budget that is spent before steps 28, 32 and 36
    assert rates == pytest.approx([0.01 * (1 + math.cos(math.pi * share)) / 2 for share in shares])


def test_the_progress_of_a_loss_goes_on_in_a_run_that_is_trained_longer(fit, toy):
    seen = []

    def loss(model, batch, state):
        seen.append(state.progress)
        return toy.Task().loss(model, batch, state)

    task = SimpleNamespace(loss=loss, init_state=toy.Task().init_state)
    fit("longer")
    fit(
        "longer", CONFIG.replace(steps=28, restart={**RESTART, "progress": 0.5}, accumulate=1), task=task, validate=None
    )
    assert sorted(set(seen)) == [0.5, 0.625, 0.75, 0.875]


def test_early_stopping_begins_anew_in_a_run_that_is_trained_longer(fit):
    config = CONFIG.replace(steps=80, validate_every=2, patience=2)
    worse = iter(range(1000))
    how = {"validate": lambda model: {"nll": float(next(worse))}}
    _, first = fit("stale", config, **how)
    assert (first.reason, first.step) == ("patience", 6)
    longer = config.replace(steps=10, restart={"step": 6, "epoch": 1, "index": 4})
    assert fit("stale", longer, **how)[1].step == 10
    assert fit("stale", longer, **how)[1].reason in ("steps", "patience")


def test_a_shorter_epoch_of_changed_data_begins_the_next(fit, toy):
    class Short(toy.Data):
        def plan(self, epoch):
            return super().plan(epoch)[:4]

    _, result = fit("changed", CONFIG.replace(steps=6))
    assert (result.step, result.epoch) == (6, 1)  # and four batches of the epoch
    _, result = fit("changed", CONFIG.replace(steps=8), data=Short())
    assert (result.step, result.epoch) == (8, 3)


def test_a_finished_run_stays_as_it_is(fit):
    run, first = fit()
    before = {path: path.stat().st_mtime_ns for path in run.checkpoints.rglob("*")}
    _, again = fit()
    assert (again.reason, again.step, again.best) == (first.reason, first.step, first.best)
    assert {path: path.stat().st_mtime_ns for path in run.checkpoints.rglob("*")} == before


def test_a_damaged_checkpoint_costs_only_the_steps_since_the_one_before(fit):
    whole, _ = fit("whole")
    run, _ = fit("damaged", CONFIG.replace(steps=16))
    (run.checkpoint_path(16) / "optimizer.safetensors").write_bytes(b"")
    fit("damaged")
    assert same(run, whole)
    assert [row["step"] for row in run.metrics.rows() if "valid" in row] == [8, 16, 24]


def test_a_non_finite_gradient_stops_training_and_names_the_examples(fit, toy):
    task = task_that(toy, lambda call, batch: float("nan") if call == 20 else None)
    with pytest.raises(UserError, match=r"step 11: the gradient is not finite \(examples \d+, ") as caught:
        fit(task=task)
    plan = toy.Data().plan(2)
    listed = [number for numbers in plan[4:6] for number in numbers.tolist()]
    assert f"({'examples ' + ', '.join(map(str, listed[:20]))}" in str(caught.value)
    run, result = fit()
    assert result.reason == "steps"
    assert all(tensor.isfinite().all() for tensor in load_weights(run).values())
    assert [row["skipped"] for row in run.metrics.rows() if "skipped" in row] == [listed]


def test_non_finite_updates_can_be_skipped_but_not_forever(fit, toy):
    skipping = CONFIG.replace(nan="skip")
    task = task_that(toy, lambda call, batch: float("inf") if call in (6, 20) else None)
    run, result = fit(config=skipping, task=task)
    assert result.reason == "steps"
    rows = run.metrics.rows()
    assert [row["step"] for row in rows if "skipped" in row] == [3, 11]
    assert all(np.isfinite(row["loss"]) for row in rows if "loss" in row)
    with pytest.raises(UserError, match="step 11: the gradient is not finite"):
        fit("lost", config=skipping, task=task_that(toy, lambda call, batch: float("nan")))


@pytest.mark.parametrize("rate", [1e30, 3e38])
@pytest.mark.parametrize("policy", ["stop", "skip"])
def test_diverged_weights_are_not_saved_and_good_checkpoints_stay(fit, toy, rate, policy):
    run, _ = fit(config=CONFIG.replace(steps=8))
    good = load_latest(run)
    wild = CONFIG.replace(keep_checkpoints=1, nan=policy, checkpoint_every=1, schedule={"kind": "constant", "lr": rate})
    with pytest.raises(UserError, match=r"finite.*step-\d+ is the last good checkpoint: lower train\.schedule\.lr"):
        fit(config=wild)
    for step in run.steps():
        kept = read_checkpoint(run.checkpoint_path(step))
        assert all(tensor.isfinite().all() for tensor in kept.model.values())
        model = toy.Model()
        restore(model, kept.model)
        assert toy.Task().loss(model.eval(), toy.Data().batch(np.arange(4)), LossState()).total.isfinite()
    assert all(
        torch.equal(tensor, good.model[name]) for name, tensor in read_checkpoint(run.checkpoint_path(8)).model.items()
    )


def test_early_stopping_keeps_the_best_checkpoint(fit):
    scores = iter([1.0, 3.0, 2.0, float("nan"), 2.5])
    config = CONFIG.replace(validate_every=2, patience=3, keep_checkpoints=1)
    run, result = fit(config=config, validate=lambda model: {"bleu": next(scores)}, watch=Metric("bleu", lower=False))
    assert (result.reason, result.step) == ("patience", 10)
    assert result.best == {"name": "bleu", "value": 3.0, "step": 4}
    assert run.steps() == [4, 10]
    assert run.read_pointer("best") == 4


def test_a_score_that_does_not_exist_cannot_be_watched(fit):
    with pytest.raises(UserError, match="no score 'bleu' to watch; known: nll"):
        fit(watch=Metric("bleu"))


def test_of_equal_scores_the_later_checkpoint_is_best_but_patience_ends(fit):
    scores = iter([2.0, 1.0, 1.0, 3.0])
    config = CONFIG.replace(steps=100, validate_every=4, patience=2)
    run, result = fit(config=config, validate=lambda model: {"nll": next(scores)})
    assert (result.reason, result.step, result.best["step"]) == ("patience", 16, 12)
    assert (run.path / "best").read_text().strip() == "step-12"


def test_minutes_are_a_budget_that_the_schedule_follows(fit, toy):
    task = toy.Task()
    task.pause = 0.005
    config = CONFIG.replace(steps=0, minutes=0.02, schedule={"kind": "linear", "warmup": 0}, log_every=1)
    run, result = fit(config=config, task=task, validate=None)
    assert result.reason == "minutes"
    assert 0.02 <= result.minutes < 0.05
    rates = [row["rate"] for row in run.metrics.rows()]
    assert rates == sorted(rates, reverse=True)
    assert rates[0] > 0.9e-3
    assert rates[-1] < 0.3e-3
    _, again = fit(config=config, task=task, validate=None)
    assert again.step == result.step


def test_validation_counts_towards_the_budget_in_minutes(fit):
    def slow(model):
        time.sleep(0.7)
        return {"nll": 1.0}

    run, result = fit(config=CONFIG.replace(steps=0, minutes=0.01, validate_every=1), validate=slow)
    assert (result.reason, result.step) == ("minutes", 1)
    assert run.state["minutes"] >= 0.01


def test_a_run_that_is_being_trained_refuses_a_second_trainer(fit, run):
    with run.lock(), pytest.raises(UserError, match="is being trained by process"):
        fit()


def test_data_without_batches_is_refused(fit, toy):
    with pytest.raises(UserError, match="gives no batch"):
        fit(data=SimpleNamespace(plan=lambda epoch: [], batch=toy.Data().batch))


def test_validation_sees_the_averaged_weights_without_dropout(fit, toy):
    seen = []

    def validate(model):
        seen.append((model.training, torch.is_grad_enabled(), model.embed.weight.detach().clone()))
        return toy.validate(model)

    run, _ = fit(validate=validate)
    assert all((training, grad) == (False, False) for training, grad, _ in seen)
    newest = load_latest(run)
    assert newest is not None
    assert torch.equal(seen[-1][2], newest.ema["embed.weight"])
    assert not torch.equal(seen[-1][2], newest.model["embed.weight"])


def test_saving_leaks_no_file_descriptors(fit):
    fit("first", CONFIG.replace(steps=4))
    before = len(os.listdir("/proc/self/fd"))
    fit("second", CONFIG.replace(steps=40, checkpoint_every=1))
    assert len(os.listdir("/proc/self/fd")) == before
