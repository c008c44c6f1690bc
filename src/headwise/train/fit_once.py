"""Models without gradients, such as n-gram models: fitted by counting, in one pass over the data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from time import monotonic

from torch import nn

from headwise.runs.checkpoint import Checkpoint, load_latest, save, unique_tensors
from headwise.runs.run import Run
from headwise.train.observers import MetricsFile, Observer, Observers
from headwise.train.state import Metric, Result, Samples, State, Validate


def fit_once(
    run: Run,
    model: nn.Module,
    fit: Callable[[], None],
    validate: Validate,
    samples: Samples,
    watch: Metric,
    observers: Sequence[Observer] = (),
) -> Result:
    """Fit the model, validate it and save it as step 1; a run that has a checkpoint is not fitted again."""
    with run.lock():
        if checkpoint := load_latest(run):
            return to_result(State.from_json(checkpoint.state, str(run.path)))
        observer = Observers([MetricsFile(run.metrics)], observers)
        with observer.observe(run, 0) as results:
            start = monotonic()
            fit()
            model.eval()
            scores = dict(validate(model))
            state = State(step=1, epoch=1, minutes=(monotonic() - start) / 60, validated=1)
            state.best = {"name": watch.name, "value": float(scores[watch.name]), "step": 1}
            position = {"step": 1, "epoch": 1, "minutes": round(state.minutes, 4)}
            observer.on_validation({**position, "valid": scores, "samples": samples(model)})
            run.metrics.sync()
            save(run, Checkpoint(asdict(state), unique_tensors(model)))
            observer.on_checkpoint(run.checkpoint_path(1), 1)
            results.append(to_result(state))
    return results[-1]


def to_result(state: State) -> Result:
    return Result("epochs", state.step, state.epoch, state.minutes, state.best)
