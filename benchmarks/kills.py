"""Kill a training with SIGKILL, again and again, and compare what it ends with.

    python benchmarks/kills.py --kills 100 --inside 30

Each life of a small run (dropout, tied weights, moving average, accumulation, validation) ends by
`kill -9`: `inside` of them at a chosen stage of a save, the others at a random moment. When a run
has reached its end, its weights, optimiser, averages and metrics are compared, byte by byte, with
those of a run that was never disturbed; then a new run begins until all kills are spent.
The processes are forked from this one, which has imported torch but never run it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import torch._dynamo  # the first optimiser asks for it: once here instead of in every life
from torch import Tensor, nn
from torch.nn import functional as F

from headwise.runs import Run
from headwise.runs.checkpoint import load_latest
from headwise.train.config import TrainConfig
from headwise.train.loop import train
from headwise.train.state import LossState

VOCAB, WIDTH, LENGTH, EXAMPLES = 20, 16, 8, 64
STAGES = (
    *("write model", "write optimizer", "write ema", "manifest", "fsync", "rename"),
    *("last", "best", "prune"),
)
CONFIG = TrainConfig(
    steps=48,
    accumulate=2,
    ema=0.9,
    optimizer="adamw",
    log_every=3,
    validate_every=8,
    checkpoint_every=4,
    keep_checkpoints=2,
)


class Model(nn.Module):
    """Next-token prediction from one token, with tied embeddings and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCAB, WIDTH)
        self.mix = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Dropout(0.2), nn.LayerNorm(WIDTH))
        self.head = nn.Linear(WIDTH, VOCAB)
        self.head.weight = self.embed.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.mix(self.embed(tokens)))  # (B, T) -> (B, T, vocab)


@dataclass(frozen=True)
class Batch:
    x: Tensor
    y: Tensor

    @property
    def tokens(self) -> int:
        return self.y.numel()

    def to(self, device: torch.device) -> Batch:
        return Batch(self.x.to(device), self.y.to(device))


class Data:
    """Counting modulo the vocabulary; the order is a function of (seed, epoch)."""

    def plan(self, epoch: int) -> list[np.ndarray]:
        order = np.random.default_rng((1, epoch)).permutation(EXAMPLES)
        return np.array_split(order, 7)

    def batch(self, numbers: np.ndarray) -> Batch:
        start = torch.from_numpy(numbers)[:, None] + torch.arange(LENGTH + 1)  # (B, T + 1)
        return Batch(start[:, :-1] % VOCAB, start[:, 1:] % VOCAB)


class Task:
    pause = 0.0

    def init_state(self, model: nn.Module) -> LossState:
        return LossState()

    def loss(self, model: nn.Module, batch: Batch, state: LossState) -> Any:
        time.sleep(self.pause)
        total = F.cross_entropy(model(batch.x).flatten(0, 1), batch.y.flatten(), reduction="sum")
        return SimpleNamespace(total=total, nll=total.detach(), count=torch.tensor(batch.y.numel()))


def validate(model: nn.Module) -> dict[str, float]:
    torch.rand(3)  # what validation draws must not matter
    batch = Data().batch(np.arange(EXAMPLES))
    return {"nll": (Task().loss(model, batch, LossState()).total / batch.tokens).item()}


def live(path: Path, stage: str = "", save: int = 0, pause: float = 0.0) -> None:
    """Train to the end; or die at a stage of the given save of this life."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    heard: Counter[str] = Counter()

    def hear(name: str) -> None:
        heard[name] += 1
        if name == stage and heard[name] > save:
            os.kill(os.getpid(), signal.SIGKILL)

    run = Run.open(path)
    run.stage = hear
    task = Task()
    task.pause = pause
    train(run, Model(), task, Data(), CONFIG, seed=7, validate=validate)


def spawn(path: Path, after: float = 0.0, **how: Any) -> bool:
    """One life in a process of its own, killed `after` seconds where that is set; True if it was killed."""
    child = os.fork()
    if child == 0:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
        live(path, **how)
        os._exit(0)
    if after:
        time.sleep(after)
        os.kill(child, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status not in (0, -signal.SIGKILL):
        raise SystemExit(f"a life ended with status {status} instead of being killed")
    return status != 0


def remains(run: Run) -> dict[str, Any]:
    """All that must be equal, without what the clock wrote."""
    folder = run.checkpoint_path(run.steps()[-1])
    timed = ("minutes", "tokens_per_second")
    rows = [{key: row[key] for key in row if key not in timed} for row in run.metrics.rows()]
    state = {key: value for key, value in run.state.items() if key not in timed}
    tensors = {file.name: file.read_bytes() for file in sorted(folder.glob("*.safetensors"))}
    pointers = {name: run.read_pointer(name) for name in ("best", "last")}
    return {"tensors": tensors, "state": state, "rows": rows, "steps": run.steps(), "pointers": pointers}


def trial(kills: int, inside: int, seed: int, folder: Path) -> dict[str, Any]:
    chance = random.Random(seed)
    plans = [(STAGES[number % len(STAGES)], number % 3) for number in range(inside)]
    plans += [("", 0)] * (kills - inside)
    chance.shuffle(plans)
    reference = Run.create(folder / "undisturbed", {})
    spawn(reference.path)
    wanted = remains(reference)
    stages: Counter[str] = Counter()
    runs = equal = whole = 0
    while plans or runs == 0:
        runs += 1
        run = Run.create(folder / f"run-{runs}", {})
        ended = False
        while not ended:
            stage, save = plans.pop() if plans else ("", 0)
            spare = not stage and sum(stages.values()) >= kills
            how = {"stage": stage, "save": save} if stage else {"pause": 0.002}
            after = 0.0 if stage or spare else chance.uniform(0.01, 0.5)
            killed = spawn(run.path, after, **how)
            ended = not killed
            if killed:
                stages[stage or "random moment"] += 1
                whole += not run.steps() or load_latest(run) is not None
            elif stage or after:
                plans.insert(0, (stage, save))
        equal += remains(run) == wanted
    return {
        "kills": sum(stages.values()),
        "inside": sum(stages.values()) - stages["random moment"],
        "loadable": whole,
        "runs": runs,
        "identical": equal,
        "stages": dict(stages),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--inside", type=int, default=36, help="kills inside a save")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        found = trial(given.kills, given.inside, given.seed, Path(folder))
    if given.json:
        print(json.dumps(found))
        return
    print(f"{found['kills']} kills, {found['inside']} of them inside a save, in {time.monotonic() - start:.0f} s")
    for stage, times in sorted(found["stages"].items()):
        print(f"  {times:4} {stage}")
    print(f"{found['loadable']} of {found['kills']} left only whole checkpoints to go on from")
    print(f"{found['identical']} of {found['runs']} finished runs equal the undisturbed one bit by bit")


if __name__ == "__main__":
    main()
