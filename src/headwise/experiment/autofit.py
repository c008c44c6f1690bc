"""Auto-fit: choose an experiment for the data and a time limit, and train it (`headwise fit`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from headwise.blocks.stack import count_parameters
from headwise.config.base import validate
from headwise.data.config import TextDataConfig
from headwise.data.sniff import Facts, sniff
from headwise.experiment.config import Experiment
from headwise.experiment.run import train_experiment
from headwise.models.transformer import TransformerConfig
from headwise.runs import Run
from headwise.tasks.tables import TASKS, task_config

# width, heads, encoder depth, decoder depth: each step up costs about three times as much
LADDER = ((64, 4, 2, 2), (128, 4, 3, 2), (192, 6, 4, 3), (256, 4, 4, 4), (512, 8, 6, 6))
ENOUGH_EPOCHS = 12  # epochs that a size must have time for
EFFICIENCY = 0.4  # FLOPs of a training step, relative to large matrix products


@dataclass(frozen=True)
class Plan:
    """An experiment and the reasons for its settings."""

    experiment: Experiment
    reasons: tuple[str, ...]


def fit(*files: str | Path, minutes: float = 10.0, runs: str | Path = "runs", name: str = "", **options: Any) -> Run:
    """Train on one TSV or two aligned files within a time limit, and return the run."""
    run, _ = train_experiment(plan(files, minutes, name).experiment, runs, **options)
    return run


def plan(files: Sequence[str | Path], minutes: float, name: str = "") -> Plan:
    """Choose task, tokeniser, size and schedule for these pairs and this time."""
    data = validate(TextDataConfig, {"train": [str(file) for file in files]}, "fit")
    facts = sniff(data)
    tokens = _estimate_tokens(facts)
    epochs, size = _choose_size(facts, tokens, minutes)
    width, heads, encoder, decoder = size
    dropout = 0.0 if epochs < 4 else 0.1 if epochs < 40 else 0.2
    batch = min(max(int(tokens / 50) // 256 * 256, 512), 4096)
    experiment = validate(
        Experiment,
        {
            "name": name or Path(files[0]).name.split(".")[0],
            "task": next(name for name in TASKS.names if task_config(name).suits(facts)),
            "data": data,
            "tokeniser": facts.tokeniser,
            "model": {
                "width": width,
                "heads": heads,
                "encoder": {"depth": encoder},
                "decoder": {"depth": decoder},
                "wiring": "pre",
                "dropout": dropout,
            },
            "train": {
                "minutes": minutes,
                "tokens_per_batch": batch,
                "schedule": {"kind": "cosine", "lr": min(3e-3, 0.25 / width), "warmup": 200},
                "optimizer": {"kind": "adamw"},
            },
        },
    )
    return Plan(
        experiment,
        (
            f"{facts.rows:,} pairs; source: {facts.reasons[0]}; target: {facts.reasons[1]}",
            f"width {width}, {encoder} + {decoder} layers: the largest size with time for about {epochs:.0f} passes "
            f"over the data in {minutes:g} minutes on this machine",
            f"dropout {dropout:g}, pre-norm, cosine decay over the whole time, batches of {batch:,} tokens",
        ),
    )


def _estimate_tokens(facts: Facts) -> float:
    """Source and target tokens of an epoch, roughly."""
    sides = ((facts.source, facts.tokeniser), (facts.target, facts.tokeniser.target_side))
    per_row = [
        {"words": side.mean_words, "bpe": 1.3 * side.mean_words, "unigram": 1.3 * side.mean_words}.get(
            config.kind, side.mean_characters
        )
        for side, config in sides
    ]
    return facts.rows * sum(length + 1 for length in per_row)


def _choose_size(facts: Facts, tokens: float, minutes: float) -> tuple[float, tuple[int, int, int, int]]:
    """The largest size of the ladder with time for enough epochs, and the number of its epochs."""
    speed = flops_per_second() * EFFICIENCY
    vocab = getattr(facts.tokeniser, "size", 0) or facts.source.distinct_characters
    epochs, chosen = 0.0, LADDER[0]
    for width, heads, encoder, decoder in LADDER:
        config = TransformerConfig.model_validate(
            {"width": width, "heads": heads, "encoder": {"depth": encoder}, "decoder": {"depth": decoder}}
        )
        with torch.device("meta"):
            size = count_parameters(config.build(vocab))
        # 6 FLOPs for each parameter and token; each token passes one of the two stacks.
        passes = minutes * 60 * speed / (6 * size * tokens / 2)
        if passes >= ENOUGH_EPOCHS or not epochs:
            epochs, chosen = passes, (width, heads, encoder, decoder)
    return epochs, chosen


def flops_per_second(size: int = 768) -> float:
    """FLOP/s of this machine's matrix products, measured in a fraction of a second."""
    matrix = torch.rand(size, size)
    times = []
    for _ in range(5):
        start = perf_counter()
        matrix @ matrix
        times.append(perf_counter() - start)
    return 2 * size**3 / sorted(times)[len(times) // 2]
