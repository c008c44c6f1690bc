"""ERNIE of `transformers`: BERT with task type embeddings (ERNIE 2.0), of which every token has the first."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any, Literal

from pydantic import Field

from headwise.interop.hf.bert import (
    BERT,
    EMBEDDING,
    MLM_HEAD,
    HfEncoderConfig,
    build_head_maps,
    build_layer_map,
    has_tensor,
    list_ignored,
    set_prefix,
)


class HfErnieConfig(HfEncoderConfig):
    base_prefix = "ernie"

    model_type: Literal["ernie"] = "ernie"
    vocab_size: int = Field(30522, gt=0)
    task_type_vocab_size: int = Field(3, gt=0)
    use_task_id: bool = False

    def to_settings(self, task: str, names: Collection[str]) -> dict[str, Any]:
        return super().to_settings(task, names) | {
            "task_types": self.task_type_vocab_size if self.use_task_id else 0,
            "pool": "mean" if task == "encode" and not has_tensor(names, "pooler.dense.weight") else "pooler",
            "next_sentence_head": has_tensor(names, "cls.seq_relationship.weight"),
        }

    @classmethod
    def build_keys(cls, config: Any) -> dict[str, Any]:
        return super().build_keys(config) | {
            "use_task_id": config.task_types > 0,
            "task_type_vocab_size": config.task_types or 3,
        }


ERNIE = replace(
    BERT,
    hf_config=HfErnieConfig,
    relatives=(),
    classes={name.replace("Bert", "Ernie"): task for name, task in BERT.classes.items()},
    name_map={
        **set_prefix("ernie", EMBEDDING),
        "encoder.embed.tasks.table": "ernie.embeddings.task_type_embeddings",
        **build_layer_map("ernie.encoder.layer.{i}"),
    },
    head_maps=build_head_maps("ernie.pooler.dense", "cls.seq_relationship", MLM_HEAD),
    required_tensors={"ErnieForPreTraining": "next_sentence_head.2.weight"},
    base_prefix="ernie.",
    ignored=list_ignored("ernie"),
)
