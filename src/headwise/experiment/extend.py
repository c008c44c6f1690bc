"""Train a finished run longer: a new budget that begins where the run ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headwise.errors import UserError
from headwise.experiment.config import Experiment
from headwise.runs import Run
from headwise.runs.checkpoint import load_latest
from headwise.train.config import RestartConfig, TrainConfig
from headwise.train.schedules import REWARM
from headwise.train.state import State


@dataclass(frozen=True)
class Extension:
    """A further budget: at least one of these is not 0."""

    steps: int = 0
    epochs: int = 0
    minutes: float = 0.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value < 0:
                raise UserError(f"--{name} {value}: a budget is positive; name how much longer to train")

    def __bool__(self) -> bool:
        return any(vars(self).values())

    def __str__(self) -> str:
        return " or ".join(f"{value:g} {name}" for name, value in vars(self).items() if value)


def extend_budget(run: Run, experiment: Experiment, extension: Extension) -> tuple[Experiment, str]:
    """The experiment with the further budget, counted from the newest checkpoint, and a line that says what the
    schedule does. Budgets of before are dropped: they are spent."""
    checkpoint = load_latest(run)
    if checkpoint is None:
        raise UserError(f"{run.path} has no checkpoint yet; resume it without a further budget first")
    state = State.from_json(checkpoint.state, str(run.path))
    restart = RestartConfig(
        step=state.step,
        epoch=state.epoch,
        index=state.index,
        minutes=state.minutes,
        tokens=state.tokens,
        progress=_measure_progress(experiment.train, state),
    )
    budgets: dict[str, Any] = {
        "steps": state.step + extension.steps if extension.steps else 0,
        # a budget in epochs ends with an epoch: a begun one is finished first
        "epochs": state.epoch + bool(state.index) + extension.epochs if extension.epochs else 0,
        "minutes": state.minutes + extension.minutes if extension.minutes else 0.0,
        "tokens": 0,
        "flops": 0.0,
    }
    config = experiment.train.replace(**budgets, restart=restart)
    so_far = f"{state.step:,} steps and {state.minutes:.1f} minutes so far, {extension} more"
    line = f"{so_far}; optimiser state kept; {describe_restart(config, state.step)}"
    return experiment.replace(train=config), line


def describe_restart(config: TrainConfig, step: int) -> str:
    """Say what the schedule does in a run that is trained longer."""
    schedule: Any = config.schedule
    if not schedule.follows_budget:
        return f"the {schedule.kind} schedule continues at step {step + 1:,}"
    warmup = f"{schedule.warmup} steps or {REWARM:.0%} of the new budget, whichever is shorter"
    return (
        f"warm restart of the {schedule.kind} schedule: the learning rate rises to {schedule.lr:g} ({warmup}) and "
        "decays over the new budget"
    )


def _measure_progress(config: TrainConfig, state: State) -> float:
    """About the fraction of the budget that is spent; the parts of an epoch do not count."""
    start = config.restart
    used = {"steps": state.step, "epochs": state.epoch, "minutes": state.minutes, "tokens": state.tokens}
    begun = {"steps": start.step, "epochs": start.epoch, "minutes": start.minutes, "tokens": start.tokens}
    fractions = [
        (used[name] - begun[name]) / (budget - begun[name])
        for name in used
        if (budget := getattr(config, name)) > begun[name]
    ]
    spent = min(1.0, max(fractions, default=1.0))
    return start.progress + (1 - start.progress) * spent
