"""The training loop, for all models: loss, data and validation are arguments.

An optimiser step is a function of the checkpoint before it, the seed and the step number, so a run that is killed and
resumed ends with the same bits as one that is not. The exception is a budget in minutes, where the schedule follows
the clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, replace
from math import isfinite, nan
from time import monotonic
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor, nn

from headwise.errors import UserError, nearest
from headwise.runs.checkpoint import NonFinite, load_latest, save, update_pointers
from headwise.runs.run import Run
from headwise.train.config import TrainConfig
from headwise.train.learner import AnyLearner, Learner
from headwise.train.observers import MetricsFile, Observer, Observers, ProgressLog
from headwise.train.optim import NO_SCALES
from headwise.train.parallel.group import ALONE, Group
from headwise.train.parallel.strategy import make_strategy
from headwise.train.progress import NoProgress, Progress, make_progress
from headwise.train.signals import GroupSignals, Interrupted, Signals
from headwise.train.state import Data, HasUnit, Metric, Result, Row, Samples, State, StatefulData, Task, Validate

MAX_SKIPS = 10  # skipped updates in a row under nan = "skip"; with more, the weights have diverged


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
    flops_per_token: int = 0,
    learner_class: Callable[..., AnyLearner] = Learner,
    observers: Sequence[Observer] = (),
    show: Progress | None = None,
    group: Group = ALONE,
) -> Result:
    """Train `model` in `run` until a budget is spent, starting from the newest checkpoint if there is one.

    Calling it again resumes the run. `validate(model)` returns scores; `watch` names the one that selects the best
    checkpoint. `samples(model)` returns outputs that are logged with the scores. `lr_scales` are factors of the
    learning rate by parameter name. `flops_per_token` is the cost of training on a token, for a budget of FLOPs.
    `learner_class` takes the steps: the default is by gradients.
    `observers` are called besides those of `train.observers`.
    The processes of `group` take the same steps; only the main one validates, writes and calls observers.
    """
    with ExitStack() as stack:
        if group.is_main:
            stack.enter_context(run.lock())
        signals = stack.enter_context(Signals() if group.size == 1 else GroupSignals(group))
        strategy = {} if group.size == 1 else {"parallel": make_strategy(config.parallel.kind, group)}
        learner = stack.enter_context(closing(learner_class(model, task, config, seed, lr_scales, **strategy)))
        loop = Loop(run, learner, data, config, signals, group)
        loop.validate, loop.samples, loop.watch = validate, samples, watch
        if isinstance(signals, GroupSignals):
            loop.validate = validate and share(validate, signals)
            loop.samples = samples and share(samples, signals)
        loop.flops_per_token = flops_per_token
        progress = stack.enter_context(show or make_progress() if group.is_main else NoProgress())
        if group.is_main:
            others = [*(item.build() for item in config.observers), *observers]
            loop.observers = Observers([MetricsFile(run.metrics), ProgressLog(progress)], others)
        with loop.observers.observe(run, loop.state.step) as results:
            results.append(loop.train(progress))
        return results[-1]


def share(compute: Callable[[nn.Module], Any], signals: GroupSignals) -> Callable[[nn.Module], Any]:
    """A function of the model that the main process calls for all."""
    return lambda model: signals.on_main(lambda: compute(model))


class Step(NamedTuple):
    """An optimiser step whose gradient norm has not been read yet."""

    number: int
    indices: Sequence[np.ndarray]  # of the examples in each accumulated batch
    batch: Any  # the last of them
    norm: Tensor


class Loop:
    """The training loop with early stopping: when to take an optimiser step, validate, log, save a checkpoint, and stop
    (a budget, patience or a signal)."""

    validate: Validate | None = None
    samples: Samples | None = None
    watch: Metric = Metric()
    observers: Observers = Observers([])
    flops_per_token: int = 0

    def __init__(
        self,
        run: Run,
        learner: AnyLearner,
        data: Data,
        config: TrainConfig,
        signals: Signals,
        group: Group = ALONE,
    ):
        self.group = group
        self.run, self.learner, self.data = run, learner, data
        self.config, self.signals = config, signals
        self.keep_checkpoints = max(config.keep_checkpoints, config.average_checkpoints)
        self.state, self.saved_state = self._resume()
        self.plan = self._plan_epoch()  # the batches of this epoch, as arrays of example indices
        if self.state.index >= len(self.plan):  # the data have changed, and the epoch is shorter now
            self.state.epoch, self.state.index = self.state.epoch + 1, 0
            self.plan = self._plan_epoch()
        # Reading a gradient norm waits for the device, so on an accelerator it is read one step later.
        self.unchecked_steps: deque[Step] = deque()
        self.norm_lag = 0 if learner.device.type == "cpu" else 1
        self.norm = nan
        self.batch: Any = None  # the current one
        self.finite_batch: Any = None  # the last one with a finite gradient
        self.now = signals.poll()  # the time on which all processes agree
        self.start = self.now - 60 * self.state.minutes
        self.saved_at, self.logged_at = self.now, monotonic()

    def _resume(self) -> tuple[State, dict[str, Any]]:
        """Restore the newest checkpoint; returns the training state, and what of it is saved."""
        with self.group.main_first():  # which recovers the run from a process that was killed
            checkpoint = load_latest(self.run)
        self.group.check_same({"the step of the checkpoint": checkpoint.step if checkpoint else 0})
        state = self.learner.load(checkpoint, str(self.run.path)) if checkpoint else State()
        if isinstance(self.data, StatefulData):
            self.data.start(self.learner.model)
            if checkpoint and checkpoint.data:  # a run that begins with pretrained weights has none yet
                self.data.load_state(checkpoint.data)
        if self.group.is_main:
            self.run.rewind(state.step)
        if checkpoint is None:
            return state, {}
        if self.group.is_main:
            update_pointers(self.run, checkpoint, self.keep_checkpoints)
        saved_state = state.without_minutes()
        if state.step and state.step == self.config.restart.step:  # early stopping begins anew
            state.stale = 0
        return state, saved_state

    def train(self, progress: Progress) -> Result:
        while True:
            self.now = self.signals.poll()
            spent = self._measure_budgets()
            progress.show(max(spent.values()), self.state.step, self.state.epoch)
            stop_reason = self.signals.received or self._find_stop_reason(spent)
            if not self.signals.received and self._validation_due(final=bool(stop_reason)):
                self._validate()
                continue
            if stop_reason:
                break
            if self._checkpoint_due():
                self._save_checkpoint()
            self._train_step(max(spent.values()))
        self._save_checkpoint()
        state = self.state
        return Result(stop_reason, state.step, state.epoch, state.minutes, state.best)

    def _measure_budgets(self) -> Mapping[str, float]:
        """The fraction of each budget that is spent, counted from where a run that is trained longer restarted."""
        self.state.minutes = (self.now - self.start) / 60
        state, start, batches = self.state, self.config.restart, len(self.plan)
        tokens = state.tokens + self.learner.tokens  # up to the last log row, and since
        state.flops = float(tokens * self.flops_per_token)
        used = {
            "steps": (start.step, state.step),
            "epochs": (start.epoch + start.index / batches, state.epoch + state.index / batches),
            "minutes": (start.minutes, state.minutes),
            "tokens": (start.tokens, tokens),
            "flops": (0.0, state.flops),  # a run that is trained longer has other budgets
        }
        budgets = {name: (*used[name], getattr(self.config, name)) for name in used}
        return {name: _fraction(*budget) for name, budget in budgets.items() if budget[-1]}

    def _find_stop_reason(self, spent: Mapping[str, float]) -> str:
        """The budget that is spent, or `patience` for early stopping; empty while training goes on."""
        if self.config.patience and self.state.stale >= self.config.patience:
            return "patience"
        return next((name for name, fraction in spent.items() if fraction >= 1.0), "")

    def _plan_epoch(self) -> Sequence[np.ndarray]:
        plan = self.data.plan(self.state.epoch)
        if not len(plan):
            raise UserError("the training data gives no batch; add examples or raise train.tokens_per_batch")
        return plan

    def _train_step(self, progress: float) -> None:
        """One optimiser step, by gradient accumulation over `train.accumulate` batches."""
        state = self.state
        indices = self.plan[state.index : state.index + self.config.accumulate]
        try:
            norm = self.learner.step(self._load_batches(indices), state.step + 1, progress)
        except Interrupted:
            self.learner.abort_step()
            return
        state.step += 1
        state.index += len(indices)
        if state.index >= len(self.plan):
            state.epoch, state.index = state.epoch + 1, 0
            self.plan = self._plan_epoch()
        self.unchecked_steps.append(Step(state.step, indices, self.batch, norm))
        self._check_norms(self.norm_lag)
        if state.step % self.config.log_every == 0:
            self._log_training()

    def _load_batches(self, indices: Sequence[np.ndarray]) -> Iterator[Any]:
        for batch_indices in indices:
            if self.signals.received:  # with many batches a step is long: abort it, and repeat it after resuming
                raise Interrupted
            self.batch = self.data.batch(batch_indices)
            yield self.batch

    def _check_norms(self, lag: int) -> None:
        """Log updates that were skipped because their gradient was not finite, and stop if `train.nan` says so."""
        while len(self.unchecked_steps) > lag:
            step = self.unchecked_steps.popleft()
            self.norm = step.norm.item()
            if isfinite(self.norm):
                self.state.skips, self.finite_batch = 0, step.batch
                continue
            examples = [int(index) for batch_indices in step.indices for index in batch_indices]
            self.state.skips += 1
            self._log_row({"step": step.number, "skipped": examples})
            if self.config.nan == "stop" or self.state.skips > MAX_SKIPS:
                self._save_checkpoint()
                raise UserError(
                    f"step {step.number}: the gradient is not finite (examples {_abbreviate(examples)}); the update "
                    f"was skipped and {self.run.checkpoint_path(self.state.step)} is good: lower the learning rate, "
                    'correct the examples, or set train.nan = "skip"'
                )

    def _log_training(self) -> None:
        """Log the means since the last row."""
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
                **self.learner.metrics,
            }
        )
        self.learner.reset_metrics()
        self.logged_at = now

    def _log_row(self, row: Row) -> None:
        state = self.state
        position = {"step": state.step, "epoch": state.epoch, "minutes": round(state.minutes, 4)}
        observe = self.observers.on_validation if "valid" in row else self.observers.on_metrics
        observe({**position, **row})

    def _validation_due(self, final: bool) -> bool:
        state, every = self.state, self.config.validate_every
        if self.validate is None or state.step <= state.validated:
            return False
        return final or (state.step % every == 0 if every else state.index == 0)

    def _validate(self) -> None:
        """Validate, update the best score, log and save; interrupted by a signal, it is repeated after resuming."""
        assert self.validate is not None
        self._log_training()
        try:
            with self.learner.eval_mode() as model, self.signals.interruptible():
                scores = dict(self.validate(model))
                finite = all(map(isfinite, scores.values()))  # diverged weights cannot generate samples
                samples = {"samples": self.samples(model)} if self.samples and finite else {}
        except Interrupted:
            return
        self._update_best(scores)
        self._log_row({"valid": scores, **samples})
        self._save_checkpoint()
        self.logged_at = monotonic()

    def _update_best(self, scores: Mapping[str, float]) -> None:
        """Record the watched score, and for early stopping the number of validations without a better one."""
        state, name = self.state, self.watch.name
        if name not in scores:
            raise UserError(f"the validation has no score '{name}' to watch; {nearest(name, scores)}")
        state.validated = state.step
        value = float(scores[name])
        better = isfinite(value) and (not state.best or self.watch.is_better(value, state.best["value"]))
        state.stale = 0 if better else state.stale + 1
        if better or value == state.best.get("value"):  # of equal scores the later checkpoint is the best
            state.best = {"name": name, "value": value, "step": state.step}

    def _checkpoint_due(self) -> bool:
        every, minutes = self.config.checkpoint_every, self.config.checkpoint_minutes
        by_step = every and self.state.step % every == 0
        by_clock = minutes and self.now - self.saved_at >= 60 * minutes
        return self.state.step > 0 and bool(by_step or by_clock)

    def _save_checkpoint(self) -> None:
        """Save a checkpoint, unless this state is saved already; diverged weights are an error."""
        self._check_norms(0)
        self._log_training()
        if self.saved_state == self.state.without_minutes():
            return
        if not self._has_finite_loss():
            raise UserError(self._describe_divergence("the loss is not finite, so the weights are not saved"))
        if self.group.is_main:
            self.state.minutes = (monotonic() - self.start) / 60  # validation included
        try:
            checkpoint = self.learner.checkpoint(asdict(self.state))
            if isinstance(self.data, StatefulData):
                checkpoint = replace(checkpoint, data=self.data.dump_state())
            if self.group.is_main:
                self.run.metrics.sync()
                save(self.run, checkpoint, self.keep_checkpoints)
        except NonFinite as error:
            raise UserError(self._describe_divergence(str(error))) from error
        self.saved_state, self.saved_at = self.state.without_minutes(), self.now
        self.observers.on_checkpoint(self.run.checkpoint_path(self.state.step), self.state.step)

    def _has_finite_loss(self) -> bool:
        """Whether the loss is finite on a batch on which it was before: after too large an update the weights can be
        finite and the loss not."""
        return self.finite_batch is None or self.learner.has_finite_loss(self.finite_batch)

    def _describe_divergence(self, problem: str) -> str:
        """The error message for diverged weights."""
        steps = self.run.steps()
        good = (
            f"{self.run.checkpoint_path(steps[-1])} is the last good checkpoint"
            if steps
            else "there is no checkpoint yet"
        )
        return (
            f"step {self.state.step}: {problem}; {good}: lower train.schedule.lr or set train.clip_norm, "
            "and train again"
        )


def _fraction(start: float, now: float, end: float) -> float:
    return min(1.0, max(0.0, now - start) / (end - start)) if end > start else 1.0


def _abbreviate(numbers: Sequence[int], most: int = 20) -> str:
    return ", ".join(map(str, numbers[:most])) + (", ..." if len(numbers) > most else "")
