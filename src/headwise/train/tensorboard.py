"""TensorBoard logs of a run."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from headwise.runs import Run
from headwise.utils.extras import needed_for


@contextmanager
def open_tensorboard(run: Run, step: int) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """An observer that writes rows to the run's `tensorboard` folder, from `step` on."""
    with needed_for("train.tensorboard"):
        from torch.utils.tensorboard import SummaryWriter

    def observe(row: Mapping[str, Any]) -> None:
        valid = {f"valid/{name}": value for name, value in row.get("valid", {}).items()}
        train = {f"train/{name}": row[name] for name in ("loss", "nll", "rate", "norm") if name in row}
        for name, value in (valid | train).items():
            writer.add_scalar(name, value, row["step"])

    # purge_step hides what a killed process logged after its last checkpoint
    with SummaryWriter(str(run.path / "tensorboard"), purge_step=step + 1) as writer:
        yield observe
