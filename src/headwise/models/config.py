"""What every model's config has in common. No torch here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from headwise.config.base import Config
from headwise.errors import UserError

Tie = Literal["auto", "all", "target", "inputs", "none"]  # inputs: source and target share, the outputs have their own
PoolKind = Literal["mean", "max", "first", "last", "pooler", "pooler_gelu"]  # pooler: the first, through tanh or GELU


class ModelConfig(Config):
    """A `kind` and `build(vocab, outputs, task)`. The task decides the head."""

    place: ClassVar[str | None] = "model"
    kind: str
    tasks: ClassVar[tuple[str, ...]] = ("transduce",)

    def build(self, vocab: int, outputs: int = 0, task: str = "") -> Any:
        """An nn.Module of the task's shape (models/encoder_decoder.py, models/language_model.py, ...), for `vocab`
        input tokens and `outputs` target tokens or labels; 0 outputs: the same vocabulary."""
        raise TypeError(f"{type(self).__name__} has no build method")

    def lr_scales(self) -> Mapping[str, float]:
        """Parts of the model, by name, that learn more slowly: their shares of the learning rate."""
        return {}

    def resolve_task(self, task: str) -> str:
        """`task`, if the architecture can do it; without one, its first task."""
        if task and task not in self.tasks:
            raise UserError(f"model.kind: '{self.kind}' cannot {task}, it can {', '.join(self.tasks)}; choose another")
        return task or self.tasks[0]
