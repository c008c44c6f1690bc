"""What is learnt: an explicit table from the name of a task to where it lives, which is imported when it is used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwise.tasks.base import Task

TASKS = {
    "transduce": "headwise.tasks.transduce:Transduce",
    "language-model": "headwise.tasks.language_model:LanguageModelTask",
    "masked": "headwise.tasks.masked:Masked",
    "denoise": "headwise.tasks.denoise:Denoise",
    "tag": "headwise.tasks.tag:Tag",
    "classify": "headwise.tasks.classify:Classify",
    "classify-images": "headwise.tasks.classify_images:ClassifyImages",
    "detect": "headwise.tasks.detect:Detect",
    "caption": "headwise.tasks.caption:Caption",
    "regress": "headwise.tasks.regress:Regress",
    "answer": "headwise.tasks.answer:Answer",
    "embed": "headwise.tasks.embed:Embed",
    "encode": "headwise.tasks.encode:Encode",
    "encode-images": "headwise.tasks.encode:EncodeImages",
}


def task_class(kind: str) -> type[Task]:
    """The class of a task by its name."""
    module, _, name = TASKS[kind].partition(":")
    return getattr(import_module(module), name)
