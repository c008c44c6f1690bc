"""RoBERTa and XLM-RoBERTa of `transformers`: BERT with other heads, and positions that begin after `pad_token_id`.

Its tokenisers give no token types, so every token has the first; and two separators stand between the texts of a pair
(`HfTokeniser.pair_separators`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from headwise.interop.hf.architecture import TokenId
from headwise.interop.hf.bert import (
    BERT,
    LABELS,
    HfEncoderConfig,
    build_layer_map,
    has_tensor,
    list_ignored,
)


class HfRobertaConfig(HfEncoderConfig):
    base_prefix, mlm_head = "roberta", "lm_head"

    model_type: Literal["roberta"] = "roberta"
    vocab_size: int = Field(50265, gt=0)
    pad_token_id: int = Field(1, ge=0)  # the row before that of the first position
    bos_token_id: TokenId = 0
    eos_token_id: TokenId = 2

    @model_validator(mode="after")
    def _check_padding(self) -> Self:
        if self.context < 1:
            raise ValueError(
                f"max_position_embeddings is {self.max_position_embeddings}, but positions begin after pad_token_id, "
                f"which is {self.pad_token_id}; correct one"
            )
        if self.pad_token_id in (self.bos_token_id, self.eos_token_id):
            raise ValueError("pad_token_id is that of another special token, which would have no position; correct one")
        return self

    @property
    def context(self) -> int:
        return self.max_position_embeddings - self.pad_token_id - 1

    def to_settings(self, task: str, names: Collection[str]) -> dict[str, Any]:
        return super().to_settings(task, names) | {
            "positions": {"kind": "learned", "max_length": self.context, "offset": self.pad_token_id + 1},
            "token_types": 0,
            "task_types": self.type_vocab_size,
            "head_transform": {"activation": "gelu"},
            "pool": "mean" if task == "encode" and not has_tensor(names, "pooler.dense.weight") else "pooler",
            "next_sentence_head": False,
        }

    @classmethod
    def build_keys(cls, config: Any) -> dict[str, Any]:
        offset = max(1, getattr(config.positions, "offset", 1))
        return super().build_keys(config) | {
            "max_position_embeddings": getattr(config.positions, "max_length", 512) + offset,
            "pad_token_id": offset - 1,
            "bos_token_id": None,
            "eos_token_id": None,
            "type_vocab_size": config.task_types,
        }


class HfXlmRobertaConfig(HfRobertaConfig):
    model_type: Literal["xlm-roberta"] = "xlm-roberta"  # type: ignore[assignment]
    vocab_size: int = Field(30522, gt=0)


EMBEDDING = {
    "encoder.embed.table": "roberta.embeddings.word_embeddings",
    "encoder.embed.positions": "roberta.embeddings.position_embeddings",
    "encoder.embed.tasks.table": "roberta.embeddings.token_type_embeddings",
    "encoder.embed.norm": "roberta.embeddings.LayerNorm",
}
ROBERTA = replace(
    BERT,
    hf_config=HfRobertaConfig,
    relatives=(),
    classes={
        "RobertaForMaskedLM": "masked",
        "RobertaForTokenClassification": "tag",
        "RobertaForSequenceClassification": "classify",
        "RobertaForQuestionAnswering": "answer",
        "RobertaModel": "encode",
    },
    name_map={**EMBEDDING, **build_layer_map("roberta.encoder.layer.{i}")},
    head_maps={
        "masked": {
            "head.transform.dense": "lm_head.dense",
            "head.transform.norm": "lm_head.layer_norm",
            "head.table": "lm_head.decoder",
            "head.bias": "lm_head.decoder.bias",
        },
        "tag": LABELS,
        "classify": {
            "pool.1.dense": "classifier.dense",
            "head.table": "classifier.out_proj",
            "head.bias": "classifier.out_proj.bias",
        },
        "answer": {"head": "qa_outputs"},
        "encode": {"pool.1.dense": "roberta.pooler.dense"},
    },
    required_tensors={},
    base_prefix="roberta.",
    ignored=list_ignored("roberta", "lm_head"),
    special_names={},
)
XLM_ROBERTA = replace(
    ROBERTA,
    hf_config=HfXlmRobertaConfig,
    classes={f"XLM{name}": task for name, task in ROBERTA.classes.items()},
)
