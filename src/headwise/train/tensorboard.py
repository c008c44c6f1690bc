"""TensorBoard logs of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from headwise.runs import Run
from headwise.train.observers import Observer, ObserverConfig, Row, select_scalars
from headwise.utils.extras import needed_for

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

    from headwise.train.state import Result


class Tensorboard(Observer):
    """Writes losses and scores to the run's `tensorboard` folder."""

    writer: SummaryWriter

    def on_start(self, run: Run, config: Mapping[str, Any], step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        # purge_step hides what a killed process logged after its last checkpoint
        self.writer = SummaryWriter(str(run.path / "tensorboard"), purge_step=step + 1)

    def on_metrics(self, row: Row) -> None:
        for name, value in select_scalars(row).items():
            self.writer.add_scalar(name, value, row["step"])

    def on_validation(self, row: Row) -> None:
        self.on_metrics(row)

    def on_end(self, result: Result | None) -> None:
        self.writer.close()


class TensorboardConfig(ObserverConfig):
    """TensorBoard, in the run's `tensorboard` folder."""

    kind: Literal["tensorboard"] = "tensorboard"

    def build(self) -> Observer:
        with needed_for("train.observers"):
            import torch.utils.tensorboard  # noqa: F401
        return Tensorboard()
