"""DeiT of `transformers`, which always has a distillation token; a DeiT without one is a ViT there."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal

from headwise.interop.hf.architecture import Architecture
from headwise.interop.hf.bert import has_tensor
from headwise.interop.hf.vit import POOLER, HfVitBaseConfig, map_base_model
from headwise.models.deit import DeiTConfig
from headwise.models.vit import ViTConfig


class HfDeiTConfig(HfVitBaseConfig):
    image_processor = "DeiTImageProcessor"
    model_type: Literal["deit"] = "deit"

    def to_settings(self, task: str, names: Collection[str]) -> dict[str, Any]:
        return super().to_settings(task, names) | {
            "class_tokens": 2,
            "class_heads": 2 if has_tensor(names, "distillation_classifier.weight") else 1,
        }


DEIT = Architecture(
    hf_config=HfDeiTConfig,
    config=DeiTConfig,
    relatives=(ViTConfig,),
    classes={
        "DeiTForImageClassificationWithTeacher": "classify-images",
        "DeiTForImageClassification": "classify-images",
        "DeiTModel": "encode-images",
    },
    name_map=map_base_model("deit", "cls_token", "distillation_token"),
    head_maps={
        "DeiTForImageClassificationWithTeacher": {
            "heads.0.head": "cls_classifier",
            "heads.1.head": "distillation_classifier",
        },
        "DeiTForImageClassification": {"heads.0.head": "classifier"},
        "encode-images": {"pool.1.dense": "deit.pooler.dense"},
    },
    required_tensors={"DeiTForImageClassificationWithTeacher": "heads.1.head.weight"},
    base_prefix="deit.",
    ignored={r"deit\.pooler\..*": POOLER},
)
