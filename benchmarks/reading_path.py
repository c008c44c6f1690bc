"""How much must be read to understand a model? Files and lines of the functions that run.

    python benchmarks/reading_path.py                    # the Transformer of 2017
    python benchmarks/reading_path.py gpt2 --files

Counted are the functions of Headwise that run between token ids and logits, and in one step of training: loss,
backward pass, update. Lines are those of the functions, from `def` to their end, docstrings included.
"""

from __future__ import annotations

import argparse
import inspect
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch

import headwise
from headwise.data.collate import PairBatch
from headwise.tasks.base import GenerationState, generation_loss
from headwise.train.config import TrainConfig
from headwise.train.learner import Learner
from headwise.train.state import LossState

PACKAGE = Path(headwise.__file__).parent


def trace(run: Callable[[], object]) -> dict[str, set[CodeType]]:
    """The functions of the package that a call runs, by file."""
    found: dict[str, set[CodeType]] = defaultdict(set)

    def see(frame: FrameType, event: str, argument: Any) -> None:
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(str(PACKAGE)):
            found[str(Path(path).relative_to(PACKAGE))].add(frame.f_code)

    sys.setprofile(see)
    try:
        run()
    finally:
        sys.setprofile(None)
    return found


def count_lines(functions: set[CodeType]) -> int:
    """Lines of functions, those inside others counted once."""
    lines: set[int] = set()
    for code in functions:
        source, first = inspect.getsourcelines(code)
        lines |= set(range(first, first + len(source)))
    return len(lines)


def report(title: str, found: dict[str, set[CodeType]], files: bool) -> None:
    counts = {path: count_lines(functions) for path, functions in found.items()}
    print(f"{title}: {len(counts)} files, {sum(counts.values()):,} lines")
    if files:
        for path, lines in sorted(counts.items(), key=lambda item: -item[1]):
            print(f"  {lines:5}  {path}")


class Lesson:
    """What the learner asks of a task: the loss of a batch of pairs or of texts."""

    def init_state(self, model: Any) -> LossState:
        return GenerationState.of(model)

    def loss(self, model: Any, batch: PairBatch, state: LossState) -> Any:
        inputs = (batch.source, batch.target_in) if hasattr(model, "encoder") else (batch.target_in,)
        return generation_loss(model, *inputs, labels=batch.target_out, label_smoothing=0.1, state=state)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="transformer")
    parser.add_argument("--files", action="store_true", help="list the files")
    asked = parser.parse_args()
    model = headwise.build(f"{asked.model}-tiny", vocab=50)
    ids = torch.randint(4, 50, (2, 6))
    batch = PairBatch(ids, ids, ids, torch.arange(len(ids)))
    inputs = (ids, ids) if hasattr(model, "encoder") else (ids,)
    report(f"{asked.model}, tokens to logits", trace(lambda: model(*inputs)), asked.files)
    learner = Learner(model, Lesson(), TrainConfig(steps=10), seed=1)
    report(f"{asked.model}, a training step", trace(lambda: learner.step([batch], 0, 0.0)), asked.files)


if __name__ == "__main__":
    main()
