"""Models without gradients: what they learn, they count in one pass. The run folder is the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from time import monotonic

from torch import nn

from headwise.runs.checkpoint import Checkpoint, load_latest, save, unique_tensors
from headwise.runs.run import Run
from headwise.train.state import Metric, Result, Samples, State, Validate


def fit_once(
    run: Run, model: nn.Module, teach: Callable[[], None], validate: Validate, samples: Samples, watch: Metric
) -> Result:
    """Teach the model, validate it and save it as step 1; a run that has its checkpoint is left as it is."""
    with run.lock():
        if found := load_latest(run):
            state = State(**found.state)
        else:
            begun = monotonic()
            teach()
            model.eval()
            scores = dict(validate(model))
            state = State(step=1, epoch=1, minutes=(monotonic() - begun) / 60, validated=1)
            state.best = {"name": watch.name, "value": float(scores[watch.name]), "step": 1}
            where = {"step": 1, "epoch": 1, "minutes": round(state.minutes, 4)}
            run.metrics.append({**where, "valid": scores, "samples": samples(model)})
            run.metrics.sync()
            save(run, Checkpoint(asdict(state), unique_tensors(model)))
    return Result("epochs", state.step, state.epoch, state.minutes, state.best)
