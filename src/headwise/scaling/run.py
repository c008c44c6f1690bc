"""Run a ladder: train its runs with `headwise.compare`, read their curves, and fit loss over N, D and C."""

from __future__ import annotations

from collections.abc import Sequence
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
from headwise.scaling.frontier import find_frontier
from headwise.scaling.resample import resample_means
from headwise.scaling.values import QUANTITIES, Relation, Rung, Scaling

RUNS = Path("runs") / "scaling"


def run_scaling(
    config: ScalingConfig,
    runs: str | Path = RUNS,
    *,
    jobs: int = 0,
    show: Progress | None = None,
) -> Scaling:
    """Train the missing runs, as `headwise.compare.run.compare` does, and fit the laws."""
    sizes = count_by_size(config)
    comparison = compare(config.comparison, runs, jobs=jobs, show=show)
    rungs = []
    for size, arms in config.rungs:
        candidates = [
            _build_rung(size, sizes[size], comparison.arms[arm.name], rate)
            for arm, rate in zip(arms, config.rates or (0.0,), strict=True)
            if comparison.arms[arm.name].outcomes
        ]
        if candidates:
            rungs.append(min(candidates, key=lambda rung: rung.losses.mean()))
    failures = {
        f"{arm.name}, seed {seed}": sentence
        for arm in comparison.arms.values()
        for seed, sentence in arm.failures.items()
    }
    return Scaling(comparison.title, rungs, build_relations(rungs), failures)


def build_relations(rungs: Sequence[Rung]) -> dict[str, Relation]:
    """L(N) with the most data, L(D) of the largest size, L(C) along the compute frontier."""
    if not rungs:
        return {}
    most = {size: max(rung.data for rung in rungs if rung.size == size) for size in {rung.size for rung in rungs}}
    largest = max(rung.parameters for rung in rungs)
    by_size = sorted((rung for rung in rungs if rung.data == most[rung.size]), key=lambda rung: rung.parameters)
    by_data = sorted((rung for rung in rungs if rung.parameters == largest), key=lambda rung: rung.data)
    return {
        "N": _build_relation("N", [rung.parameters for rung in by_size], by_size),
        "D": _build_relation("D", [rung.data for rung in by_data], by_data),
        "C": Relation(QUANTITIES["C"], *find_frontier(rungs)),
    }


def count_by_size(config: ScalingConfig) -> dict[str, int]:
    """N of each size; raises if the models are not language models or two sizes have the same N."""
    comparison, counts = config.comparison, dict[str, int]()
    for size, (arm, *_) in config.rungs:
        if size not in counts:
            count = count_layer_parameters(comparison.build_experiment(arm, config.seeds[0]), config.name)
            if twin := next((name for name, other in counts.items() if other == count), ""):
                message = f"sizes '{twin}' and '{size}' both have {count:,} parameters"
                raise UserError(f"{config.name}: {message}; change one of them")
            counts[size] = count
    return counts


def count_layer_parameters(experiment: Experiment, where: str = "") -> int:
    """N, the non-embedding parameters (about 12 depth width² for a Transformer), counted on the meta device."""
    import torch

    from headwise.blocks.stack import count_parameters

    if experiment.task.kind != "language-model":
        raise UserError(f"{where}: task: a ladder is one of language models; set task = 'language-model'")
    with torch.device("meta"):
        model: Any = experiment.model.build(256, task="language-model")
    if not hasattr(model, "decoder"):
        raise UserError(f"{where}: model: '{experiment.model.kind}' has no layers to count; choose one that is trained")
    return count_parameters(model.decoder.stack)


def _build_relation(name: str, x: Sequence[float], rungs: Sequence[Rung]) -> Relation:
    losses = [rung.losses for rung in rungs]
    means = np.array([each.mean() for each in losses])
    return Relation(QUANTITIES[name], np.array(x, float), means, np.stack(resample_means(losses), axis=1), losses)


def _build_rung(size: str, count: int, arm: Arm, rate: float) -> Rung:
    curves = [read_curve(Run(outcome.run)) for outcome in arm.outcomes.values()]
    length = min(len(nll) for _, nll, _ in curves)  # early stopping may end one seed before the others
    tokens = np.mean([read[:length] for read, _, _ in curves], axis=0)
    nll = np.stack([nll[:length] for _, nll, _ in curves])  # (S, V)
    return Rung(size, count, tokens, nll, rate, any(epoch > 0 for *_, epoch in curves))


def read_curve(run: Run) -> tuple[Floats, Floats, int]:
    """Tokens read and loss at each validation, and the number of completed epochs."""
    tokens, epoch = 0, 0
    read, losses = [], []
    for row in run.metrics.rows():
        tokens, epoch = row.get("tokens", tokens), row.get("epoch", epoch)
        if (nll := row.get("valid", {}).get("nll")) is not None:
            read.append(tokens)
            losses.append(nll)
    return np.array(read, np.float64), np.array(losses, np.float64), epoch
