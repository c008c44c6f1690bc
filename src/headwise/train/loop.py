"""The one training loop. It knows no model: loss, data and validation are arguments.

What a step does is a function of the checkpoint before it, the seed and its number, so a run
that is killed and resumed ends with the same bits as one that never was. (Under a budget of
steps, epochs or tokens; a budget of minutes bends the schedule by the clock.)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from math import isfinite, nan
from time import monotonic
from typing import Any

import numpy as np
from torch import Tensor, nn

from headwise.errors import UserError, nearest
from headwise.runs.checkpoint import NonFinite, load_latest, save, update_pointers
from headwise.runs.run import Run
from headwise.train.config import TrainConfig
from headwise.train.learner import Learner
from headwise.train.optim import NO_SCALES
from headwise.train.progress import Progress, make_progress
from headwise.train.signals import Interrupted, Signals
from headwise.train.state import Data, HasUnit, Metric, Observer, Result, Row, Samples, State, Task, Validate
from headwise.train.tensorboard import open_tensorboard

MOST_SKIPS = 10  # in a row, under nan = "skip": beyond that the weights themselves are lost


def train(
    run: Run,
    model: nn.Module,
    task: Task,
    data: Data,
    config: TrainConfig,
    seed: int = 0,
    *,
    validate: Validate | None = None,
    samples: Samples | None = None,
    watch: Metric = Metric(),  # noqa: B008  (a frozen value)
    lr_scales: Mapping[str, float] = NO_SCALES,
    observers: Sequence[Observer] = (),
    show: Progress | None = None,
) -> Result:
    """Train `model` in `run` until the budget is spent, from its newest checkpoint where there is one.

    So resuming is calling it again. `validate(model)` returns scores, of which `watch` names the
    decisive one, and `samples(model)` outputs to be kept beside them; `lr_scales` are shares of the learning rate by
    names of parameters; `observers` hear each row of metrics.jsonl.
    """
    with ExitStack() as stack:
        stack.enter_context(run.lock())
        signals = stack.enter_context(Signals())
        loop = Loop(run, Learner(model, task, config, seed, lr_scales), data, config, signals)
        loop.validate, loop.samples, loop.watch = validate, samples, watch
        shown = stack.enter_context(show or make_progress())
        loop.observers = [run.metrics.append, shown.log, *observers]
        if config.tensorboard:
            loop.observers.append(stack.enter_context(open_tensorboard(run, loop.state.step)))
        return loop.go(shown)


class Loop:
    """The training loop, with early stopping: one process's share of a run: when to step, validate, log, save and
    stop."""

    validate: Validate | None = None
    samples: Samples | None = None
    watch: Metric = Metric()
    observers: Sequence[Observer] = ()

    def __init__(self, run: Run, learner: Learner, data: Data, config: TrainConfig, signals: Signals):
        self.run, self.learner, self.data = run, learner, data
        self.config, self.signals = config, signals
        found = load_latest(run)
        self.state = learner.load(found, str(run.path)) if found else State()
        run.rewind(self.state.step)
        self.keep = max(config.keep_checkpoints, config.average_checkpoints)
        if found:
            update_pointers(run, found, self.keep)
        self.saved = self.state.without_minutes() if found else {}
        self.plan = self._planned()
        # steps whose gradient norm is not read yet; waiting for it would stall an accelerator
        self.norms: deque[tuple[int, Sequence[np.ndarray], Any, Tensor]] = deque()
        self.norm = nan
        self.batch: Any = None  # the one in work
        self.finite: Any = None  # the last one whose gradient was finite
        self.lag = 0 if learner.device.type == "cpu" else 1
        self.start = monotonic() - 60 * self.state.minutes
        self.saved_at = self.logged_at = monotonic()

    def go(self, shown: Progress) -> Result:
        while True:
            shares = self._shares()
            shown.show(max(shares.values()), self.state.step, self.state.epoch)
            reason = self.signals.received or self._end(shares)
            if not self.signals.received and self._validation_due(bool(reason)):
                self._validate()
                continue
            if reason:
                break
            if self._checkpoint_due():
                self._save()
            self._step(max(shares.values()))
        self._save()
        state = self.state
        return Result(reason, state.step, state.epoch, state.minutes, state.best)

    def _shares(self) -> Mapping[str, float]:
        """How much of each budget is spent."""
        self.state.minutes = self._minutes()
        spent = {
            "steps": self.state.step,
            "epochs": self.state.epoch + self.state.index / len(self.plan),
            "minutes": self.state.minutes,
            "tokens": self.state.tokens + self.learner.tokens,  # logged, and learnt since
        }
        budgets = {name: getattr(self.config, name) for name in spent}
        return {name: min(1.0, spent[name] / budget) for name, budget in budgets.items() if budget}

    def _minutes(self) -> float:
        return (monotonic() - self.start) / 60

    def _end(self, shares: Mapping[str, float]) -> str:
        """Why training is over, a budget or early stopping (`patience`); empty while it is not."""
        if self.config.patience and self.state.stale >= self.config.patience:
            return "patience"
        return next((name for name, share in shares.items() if share >= 1.0), "")

    def _planned(self) -> Sequence[np.ndarray]:
        plan = self.data.plan(self.state.epoch)
        if not len(plan):
            raise UserError("the training data gives no batch; add examples or raise train.tokens_per_batch")
        return plan

    def _step(self, share: float) -> None:
        state = self.state
        group = self.plan[state.index : state.index + self.config.accumulate]
        try:
            norm = self.learner.step(self._batches(group), state.step + 1, share)
        except Interrupted:
            self.learner.forget()
            return
        state.step += 1
        state.index += len(group)
        if state.index >= len(self.plan):
            state.epoch, state.index = state.epoch + 1, 0
            self.plan = self._planned()
        self.norms.append((state.step, group, self.batch, norm))
        self._check_norms(self.lag)
        if state.step % self.config.log_every == 0:
            self._log()

    def _batches(self, group: Sequence[np.ndarray]) -> Iterator[Any]:
        for numbers in group:
            if self.signals.received:  # a long group is broken off and done again after resuming
                raise Interrupted
            self.batch = self.data.batch(numbers)
            yield self.batch

    def _check_norms(self, lag: int) -> None:
        """Report updates that were refused because the gradient was not finite."""
        while len(self.norms) > lag:
            step, group, batch, norm = self.norms.popleft()
            self.norm = norm.item()
            if isfinite(self.norm):
                self.state.skips, self.finite = 0, batch
                continue
            examples = [int(number) for numbers in group for number in numbers]
            self.state.skips += 1
            self._log_row({"step": step, "skipped": examples})
            if self.config.nan == "stop" or self.state.skips > MOST_SKIPS:
                self._save()
                raise UserError(
                    f"step {step}: the gradient is not finite (examples {_some(examples)}); the update was not "
                    f"made and {self.run.checkpoint_path(self.state.step)} is good: lower the learning rate, mend "
                    'the examples, or set train.nan = "skip"'
                )

    def _log(self) -> None:
        """Write the means since the last row."""
        if not self.learner.tokens:
            return
        now = monotonic()
        loss, nll, count = self.learner.sums.tolist()
        self.state.tokens += self.learner.tokens
        self._log_row(
            {
                "loss": loss / count if count else nan,
                "nll": nll / count if count else nan,
                "rate": self.learner.rate,
                "norm": self.norm,
                "tokens": self.state.tokens,
                "tokens_per_second": self.learner.tokens / (now - self.logged_at),
                **({"unit": self.data.unit} if isinstance(self.data, HasUnit) else {}),
                **self.learner.figures,
            }
        )
        self.learner.reset()
        self.logged_at = now

    def _log_row(self, row: Row) -> None:
        state = self.state
        where = {"step": state.step, "epoch": state.epoch, "minutes": round(state.minutes, 4)}
        for observer in self.observers:
            observer({**where, **row})

    def _validation_due(self, final: bool) -> bool:
        state, every = self.state, self.config.validate_every
        if self.validate is None or state.step <= state.validated:
            return False
        return final or (state.step % every == 0 if every else state.index == 0)

    def _validate(self) -> None:
        assert self.validate is not None
        self._log()
        try:
            with self.learner.eval_mode() as model, self.signals.interruptible():
                scores = dict(self.validate(model))
                sound = all(map(isfinite, scores.values()))  # weights that are lost write nothing
                row = {"samples": self.samples(model)} if self.samples and sound else {}
        except Interrupted:
            return  # not validated: it is done again after resuming
        self._run_validation(scores)
        self._log_row({"valid": scores, **row})
        self._save()
        self.logged_at = monotonic()

    def _run_validation(self, scores: Mapping[str, float]) -> None:
        state, name = self.state, self.watch.name
        if name not in scores:
            raise UserError(f"the validation has no score '{name}' to watch; {nearest(name, scores)}")
        state.validated = state.step
        value = float(scores[name])
        better = isfinite(value) and (not state.best or self.watch.is_better(value, state.best["value"]))
        state.stale = 0 if better else state.stale + 1
        if better or value == state.best.get("value"):  # of equals the later one has learnt longer
            state.best = {"name": name, "value": value, "step": state.step}

    def _checkpoint_due(self) -> bool:
        every, minutes = self.config.checkpoint_every, self.config.checkpoint_minutes
        by_step = every and self.state.step % every == 0
        by_clock = minutes and monotonic() - self.saved_at >= 60 * minutes
        return self.state.step > 0 and bool(by_step or by_clock)

    def _save(self) -> None:
        """Save a checkpoint, unless the last one is of this very state."""
        self._check_norms(0)
        self._log()
        if self.saved == self.state.without_minutes():
            return
        if not self._is_sound():
            raise UserError(
                self._describe_lost_weights("the weights are lost (the loss is not finite), so they are not saved")
            )
        self.run.metrics.sync()
        self.state.minutes = self._minutes()  # those of the validation too
        try:
            save(self.run, self.learner.checkpoint(asdict(self.state)), self.keep)
        except NonFinite as error:
            raise UserError(self._describe_lost_weights(str(error))) from error
        self.saved, self.saved_at = self.state.without_minutes(), monotonic()

    def _is_sound(self) -> bool:
        """Whether the weights give a finite loss where those of a step before did: a wild update may have lost them
        though they are finite themselves."""
        return self.finite is None or self.learner.has_finite_loss(self.finite)

    def _describe_lost_weights(self, why: str) -> str:
        """The sentence for weights that cannot be used any more."""
        kept = self.run.steps()
        good = (
            f"{self.run.checkpoint_path(kept[-1])} is the last good checkpoint"
            if kept
            else "there is no checkpoint yet"
        )
        return f"step {self.state.step}: {why}; {good}: lower train.schedule.lr or set train.clip_norm, and train anew"


def _some(numbers: Sequence[int], most: int = 20) -> str:
    return ", ".join(map(str, numbers[:most])) + (", ..." if len(numbers) > most else "")
