"""What every model's config has in common. No torch here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, ClassVar, Literal, Self

from pydantic import model_validator

from headwise.config.base import Config, Problems, describe_config
from headwise.errors import UserError

Tie = Literal["auto", "all", "target", "inputs", "none"]  # inputs: source and target share, the outputs have their own
# pooler: the first token's vector, or the last one's, through a dense layer with tanh, GELU or ReLU
PoolKind = Literal[
    "mean", "max", "first", "last", "pooler", "pooler_gelu", "pooler_gelu_tanh", "pooler_relu", "pooler_last",
]  # fmt: skip

CLASSIFY_WITH_LM = "classify-with-lm"  # one model with the heads of two tasks
COMBINED_TASKS = {CLASSIFY_WITH_LM: ("classify", "language-model")}

MAX_DEPTH = 1000  # layers; every one is a module, even where nothing is allocated


class ModelConfig(Config):
    """A `kind` and `build(vocab, outputs, task)`. The task decides the head."""

    place: ClassVar[str | None] = "model"
    kind: str
    tasks: ClassVar[tuple[str, ...]] = ("transduce",)

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        if "build" in vars(cls):
            setattr(cls, "build", init_wiring_after(vars(cls)["build"]))  # noqa: B010  (mypy knows no assignment to methods)

    @model_validator(mode="after")
    def _limit_depth(self) -> Self:
        for key in (key for key in type(self).model_fields if key.rpartition("_")[2] in ("depth", "depths")):
            depths = getattr(self, key)
            if any(depth > MAX_DEPTH for depth in (depths if isinstance(depths, tuple) else (depths,))):
                raise Problems([((key,), f"there can be at most {MAX_DEPTH:,} layers; choose fewer")])
        return self

    def build(self, vocab: int, outputs: int = 0, task: str = "") -> Any:
        """An nn.Module of the task's shape (models/encoder_decoder.py, models/language_model.py, ...), for `vocab`
        input tokens and `outputs` target tokens or labels; 0 outputs: the same vocabulary."""
        raise UserError(f"{self.kind}: {type(self).__name__} has no build method; write one that returns the model")

    def check_built(self, built: Any, *arguments: Any) -> Any:
        if not hasattr(super().check_built(built), "state_dict"):
            raise UserError(f"{describe_config(self)}.build returns {type(built).__name__}; return an nn.Module")
        return built

    def lr_scales(self) -> Mapping[str, float]:
        """Parts of the model, by name, that learn more slowly: their shares of the learning rate."""
        return {}

    def can(self, task: str) -> bool:
        """Whether the architecture can do a task; a combination of tasks, if it can do each."""
        return set(COMBINED_TASKS.get(task, (task,))) <= set(self.tasks)

    def resolve_task(self, task: str) -> str:
        """`task`, if the architecture can do it; without one, its first task."""
        if task and not self.can(task):
            raise UserError(f"model.kind: '{self.kind}' cannot {task}, it can {', '.join(self.tasks)}; choose another")
        return task or self.tasks[0]


def init_wiring_after(build: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the `build` method of a model's config: the wiring initialises weights last (Fixup)."""

    @wraps(build)
    def build_and_init(self: ModelConfig, *arguments: Any, **options: Any) -> Any:
        model = build(self, *arguments, **options)
        wiring = getattr(self, "wiring", None)
        if wiring is not None:
            wiring.init_weights(model)
        return model

    return build_and_init
