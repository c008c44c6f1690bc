"""The table of tasks: what an experiment may name in `[task]`, and where each config lives.

A new task is one file, which holds its config, data, loss and scores, and one line here. No torch is imported until a
kind is looked up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, cast

from headwise.config.base import Table, slot

if TYPE_CHECKING:
    from headwise.tasks.base import TaskConfig

_HERE = "headwise.tasks"

TASKS = Table(
    "task",
    default="transduce",
    place="task",
    homes={
        "transduce": f"{_HERE}.transduce:TransduceConfig",
        "language-model": f"{_HERE}.language_model:LanguageModelConfig",
        "masked": f"{_HERE}.masked:MaskedConfig",
        "replaced-tokens": f"{_HERE}.replaced_tokens:ReplacedTokensConfig",
        "denoise": f"{_HERE}.denoise:DenoiseConfig",
        "tag": f"{_HERE}.tag:TagConfig",
        "classify": f"{_HERE}.classify:ClassifyConfig",
        "classify-images": f"{_HERE}.classify_images:ClassifyImagesConfig",
        "detect": f"{_HERE}.detect:DetectConfig",
        "pixels": f"{_HERE}.pixels:PixelsConfig",
        "caption": f"{_HERE}.caption:CaptionConfig",
        "regress": f"{_HERE}.regress:RegressConfig",
        "answer": f"{_HERE}.answer:AnswerConfig",
        "encode": f"{_HERE}.encode:EncodeConfig",
        "encode-images": f"{_HERE}.encode:EncodeImagesConfig",
        "embed": f"{_HERE}.embed:EmbedConfig",
        "distogram": f"{_HERE}.distogram:DistogramConfig",
        "fold": f"{_HERE}.fold:FoldConfig",
        "act": f"{_HERE}.act:ActConfig",
        "place": f"{_HERE}.place:PlaceConfig",
        "q-learning": f"{_HERE}.q_learning:QLearningConfig",
        "soft-actor-critic": f"{_HERE}.soft_actor_critic:SoftActorCriticConfig",
        "evolve": f"{_HERE}.evolve:EvolveConfig",
    },
)

if TYPE_CHECKING:  # to a type checker, the config of what a slot holds
    AnyTask: TypeAlias = TaskConfig
else:
    AnyTask = slot(TASKS)


def task_config(kind: str) -> type[TaskConfig]:
    """The config class of a task, with its declarations."""
    return cast("type[TaskConfig]", TASKS[kind])
