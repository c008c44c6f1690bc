"""Climb a ladder: train its runs with `headwise.compare`, read their curves, relate loss to N, D and C."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from headwise.compare.progress import Progress
from headwise.compare.run import compare
from headwise.compare.values import Arm
from headwise.errors import UserError
from headwise.experiment.config import Experiment
from headwise.runs import Run
from headwise.scaling.config import ScalingConfig
from headwise.scaling.fit import Floats
from headwise.scaling.frontier import frontier
from headwise.scaling.resample import resampled
from headwise.scaling.values import QUANTITIES, Relation, Rung, Scaling

RUNS = Path("runs") / "scaling"


def scaling(
    config: ScalingConfig,
    runs: str | Path = RUNS,
    *,
    jobs: int = 0,
    parts: Iterable[str | Path] = (),
    show: Progress | None = None,
) -> Scaling:
    """Train what is not yet there, as `headwise.compare.run.compare` does, and fit the laws."""
    sizes = parameters(config)
    found = compare(config.comparison, runs, jobs=jobs, parts=parts, show=show)
    rungs = []
    for size, arms in config.rungs:
        tried = [
            _rung(size, sizes[size], found.arms[arm.name], rate)
            for arm, rate in zip(arms, config.rates or (0.0,), strict=True)
            if found.arms[arm.name].outcomes
        ]
        if tried:
            rungs.append(min(tried, key=lambda rung: rung.losses.mean()))
    failures = {
        f"{arm.name}, seed {seed}": sentence for arm in found.arms.values() for seed, sentence in arm.failures.items()
    }
    return Scaling(found.title, rungs, relations(rungs), failures)


def relations(rungs: Sequence[Rung]) -> dict[str, Relation]:
    """L(N) on the most data, L(D) of the largest size, L(C) along the frontier."""
    if not rungs:
        return {}
    most = {size: max(rung.data for rung in rungs if rung.size == size) for size in {rung.size for rung in rungs}}
    largest = max(rung.parameters for rung in rungs)
    by_size = sorted((rung for rung in rungs if rung.data == most[rung.size]), key=lambda rung: rung.parameters)
    by_data = sorted((rung for rung in rungs if rung.parameters == largest), key=lambda rung: rung.data)
    return {
        "N": _related("N", [rung.parameters for rung in by_size], by_size),
        "D": _related("D", [rung.data for rung in by_data], by_data),
        "C": Relation(QUANTITIES["C"], *frontier(rungs)),
    }


def parameters(config: ScalingConfig) -> dict[str, int]:
    """N of each size; refused where the ladder is not one of language models, or has a rung twice."""
    table, found = config.comparison, dict[str, int]()
    for size, (arm, *_) in config.rungs:
        if size not in found:
            count = body(table.experiment_of(arm, config.seeds[0]), config.name)
            if twin := next((name for name, other in found.items() if other == count), ""):
                both = f"sizes '{twin}' and '{size}' both have {count:,} parameters"
                raise UserError(f"{config.name}: {both}; change one of them")
            found[size] = count
    return found


def body(experiment: Experiment, where: str = "") -> int:
    """N, the parameters between tables: 12 depth width² and a little for a Transformer. Counted without allocating."""
    import torch

    from headwise.blocks.stack import count_parameters

    if experiment.task.kind != "language-model":
        raise UserError(f"{where}: task: a ladder is one of language models; set task = 'language-model'")
    with torch.device("meta"):
        model: Any = experiment.model.build(256, task="language-model")
    if not hasattr(model, "decoder"):
        raise UserError(f"{where}: model: '{experiment.model.kind}' has no layers to count; choose one that is trained")
    return count_parameters(model.decoder.stack)


def _related(name: str, x: Sequence[float], rungs: Sequence[Rung]) -> Relation:
    losses = [rung.losses for rung in rungs]
    means = np.array([each.mean() for each in losses])
    return Relation(QUANTITIES[name], np.array(x, float), means, np.stack(resampled(losses), axis=1), losses)


def _rung(size: str, count: int, arm: Arm, rate: float) -> Rung:
    curves = [curve(Run(outcome.run)) for outcome in arm.outcomes.values()]
    length = min(len(nll) for _, nll, _ in curves)  # patience may have ended one seed before the others
    tokens = np.mean([read[:length] for read, _, _ in curves], axis=0)
    nll = np.stack([nll[:length] for _, nll, _ in curves])  # (S, V)
    return Rung(size, count, tokens, nll, rate, any(epoch > 0 for *_, epoch in curves))


def curve(run: Run) -> tuple[Floats, Floats, int]:
    """Tokens read and loss at each validation, and how many times the text was read to its end."""
    tokens, epoch = 0, 0
    read, losses = [], []
    for row in run.metrics.rows():
        tokens, epoch = row.get("tokens", tokens), row.get("epoch", epoch)
        if (nll := row.get("valid", {}).get("nll")) is not None:
            read.append(tokens)
            losses.append(nll)
    return np.array(read, np.float64), np.array(losses, np.float64), epoch
