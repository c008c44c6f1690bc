"""DeiT of `transformers`, which always has a distillation token; a DeiT without one is a ViT there."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal

from headwise.interop.hf.architecture import Architecture
from headwise.interop.hf.bert import has
from headwise.interop.hf.vit import POOLER, TheirColumns, columns
from headwise.models.deit import DeiTConfig
from headwise.models.vit import ViTConfig


class TheirDeiT(TheirColumns):
    model_type: Literal["deit"] = "deit"

    def ours(self, task: str, names: Collection[str]) -> dict[str, Any]:
        return super().ours(task, names) | {
            "class_tokens": 2,
            "class_heads": 2 if has(names, "distillation_classifier.weight") else 1,
        }


DEIT = Architecture(
    theirs=TheirDeiT,
    config=DeiTConfig,
    relatives=(ViTConfig,),
    classes={
        "DeiTForImageClassificationWithTeacher": "classify-images",
        "DeiTForImageClassification": "classify-images",
        "DeiTModel": "encode-images",
    },
    keys=columns("deit", "cls_token", "distillation_token"),
    heads={
        "DeiTForImageClassificationWithTeacher": {
            "heads.0.head": "cls_classifier",
            "heads.1.head": "distillation_classifier",
        },
        "DeiTForImageClassification": {"heads.0.head": "classifier"},
        "encode-images": {"pool.1.dense": "deit.pooler.dense"},
    },
    hints={"DeiTForImageClassificationWithTeacher": "heads.1.head.weight"},
    stem="deit.",
    ignored={r"deit\.pooler\..*": POOLER},
)
