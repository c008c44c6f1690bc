"""ELECTRA of `transformers`: the discriminator (`ElectraForPreTraining`), the generator (`ElectraForMaskedLM`), and
heads on either. Embeddings may be narrower than the layers; heads have GELU, whatever `hidden_act` is.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any, Literal

from pydantic import Field

from headwise.interop.hf.bert import BERT, EMBEDDING, LABELS, HfEncoderConfig, build_layer_map, list_ignored, set_prefix


class HfElectraConfig(HfEncoderConfig):
    base_prefix = "electra"
    # of ElectraForMultipleChoice alone
    ignored_keys = ("summary_type", "summary_use_proj", "summary_activation", "summary_last_dropout")

    model_type: Literal["electra"] = "electra"
    vocab_size: int = Field(30522, gt=0)
    embedding_size: int = Field(128, gt=0)
    hidden_size: int = Field(256, gt=0)
    num_attention_heads: int = Field(4, gt=0)
    intermediate_size: int = Field(1024, gt=0)

    def tied_weights(self, class_name: str) -> dict[str, str]:
        if not self.tie_word_embeddings or class_name != "ElectraForMaskedLM":
            return {}
        return {"generator_lm_head.weight": "electra.embeddings.word_embeddings.weight"}

    def to_settings(self, task: str, names: Collection[str]) -> dict[str, Any]:
        return super().to_settings(task, names) | {
            "embedding_width": self.embedding_size if self.embedding_size != self.hidden_size else 0,
            "head_transform": {"activation": "gelu"},
            "pool": "mean" if task == "encode" else "pooler_gelu",
            "next_sentence_head": False,
        }

    @classmethod
    def build_keys(cls, config: Any) -> dict[str, Any]:
        return super().build_keys(config) | {"embedding_size": config.embedding_width or config.width}


ELECTRA = replace(
    BERT,
    hf_config=HfElectraConfig,
    relatives=(),
    classes={
        "ElectraForMaskedLM": "masked",
        "ElectraForPreTraining": "replaced-tokens",
        "ElectraForTokenClassification": "tag",
        "ElectraForSequenceClassification": "classify",
        "ElectraForQuestionAnswering": "answer",
        "ElectraModel": "encode",
    },
    name_map={
        **set_prefix("electra", EMBEDDING),
        "encoder.embed.projection": "electra.embeddings_project",
        **build_layer_map("electra.encoder.layer.{i}"),
    },
    head_maps={
        "masked": {
            "head.transform.dense": "generator_predictions.dense",
            "head.transform.norm": "generator_predictions.LayerNorm",
            "head.table": "generator_lm_head",
            "head.bias": "generator_lm_head.bias",
        },
        "replaced-tokens": {
            "head.dense": "discriminator_predictions.dense",
            "head.out": "discriminator_predictions.dense_prediction",
        },
        "tag": LABELS,
        "classify": {
            "pool.1.dense": "classifier.dense",
            "head.table": "classifier.out_proj",
            "head.bias": "classifier.out_proj.bias",
        },
        "answer": {"head": "qa_outputs"},
        "encode": {},
    },
    required_tensors={},
    base_prefix="electra.",
    ignored=list_ignored("electra"),
)
