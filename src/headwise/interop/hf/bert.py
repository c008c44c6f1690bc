"""BERT and ALBERT of `transformers`."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from headwise.interop.hf.architecture import (
    ACTIVATIONS,
    COMPUTED,
    Architecture,
    HfActivation,
    HfTextConfig,
    NameMap,
    TokenId,
    WeightConverter,
    fuse,
    name_activation,
)
from headwise.models.bert import AlbertConfig, BertConfig
from headwise.models.bigbird import BigBirdConfig
from headwise.models.linformer import LinformerConfig

MLM_CLASSES = ("ForPreTraining", "ForMaskedLM")


class HfEncoderConfig(HfTextConfig):
    """The keys that BERT and its relatives share."""

    base_prefix: ClassVar[str] = "bert"  # `base_model_prefix` of `transformers`
    mlm_head: ClassVar[str] = "cls.predictions"  # module of the masked language model head

    hidden_size: int = Field(768, gt=0)
    num_hidden_layers: int = Field(12, gt=0)
    num_attention_heads: int = Field(12, gt=0)
    intermediate_size: int = Field(3072, gt=0)
    hidden_act: HfActivation = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    max_position_embeddings: int = Field(512, gt=0)
    type_vocab_size: int = Field(2, ge=0)
    layer_norm_eps: float = 1e-12
    tie_word_embeddings: bool = True
    pad_token_id: TokenId = 0
    position_embedding_type: Literal["absolute"] = "absolute"

    @property
    def context(self) -> int:
        return self.max_position_embeddings

    def tied_weights(self, class_name: str) -> dict[str, str]:
        if not self.tie_word_embeddings or not class_name.endswith(MLM_CLASSES):
            return {}
        return {
            f"{self.mlm_head}.decoder.weight": f"{self.base_prefix}.embeddings.word_embeddings.weight",
            f"{self.mlm_head}.decoder.bias": f"{self.mlm_head}.bias",
        }

    def to_settings(self, task: str, names: Collection[str]) -> dict[str, Any]:
        return {
            "width": self.hidden_size,
            "depth": self.num_hidden_layers,
            "heads": self.num_attention_heads,
            "hidden": self.intermediate_size,
            "activation": ACTIVATIONS[self.hidden_act],
            "positions": {"kind": "learned", "max_length": self.max_position_embeddings},
            "norm": {"kind": "layer", "eps": self.layer_norm_eps},
            "dropout": self.hidden_dropout_prob,
            "attention_dropout": self.attention_probs_dropout_prob,
            "token_types": self.type_vocab_size,
        }

    @classmethod
    def from_model_config(cls, config: Any, vocab: int) -> Self:
        return cls.model_validate(cls.build_keys(config) | {"vocab_size": vocab})

    @classmethod
    def build_keys(cls, config: Any) -> dict[str, Any]:
        return {
            "hidden_size": config.width,
            "num_hidden_layers": config.depth,
            "num_attention_heads": config.heads,
            "intermediate_size": config.hidden or 4 * config.width,
            "hidden_act": name_activation(config),
            "hidden_dropout_prob": config.dropout,
            "attention_probs_dropout_prob": config.attention_dropout,
            "max_position_embeddings": getattr(config.positions, "max_length", 512),
            "type_vocab_size": max(1, config.token_types),  # transformers adds the first to every token
            "layer_norm_eps": config.norm.eps,
            "tie_word_embeddings": config.tie not in ("none", "inputs"),
        }


class HfBertConfig(HfEncoderConfig):
    ignored_keys = (
        "directionality",
        *(f"pooler_{key}" for key in ("fc_size", "num_attention_heads", "num_fc_layers", "size_per_head", "type")),
    )

    model_type: Literal["bert"] = "bert"
    vocab_size: int = Field(30522, gt=0)

    def to_settings(self, task: str, names: Collection[str]) -> dict[str, Any]:
        return super().to_settings(task, names) | {
            "pool": "mean" if task == "encode" and not has_tensor(names, "pooler.dense.weight") else "pooler",
            "next_sentence_head": has_tensor(names, "cls.seq_relationship.weight"),
        }


class HfAlbertConfig(HfEncoderConfig):
    base_prefix, mlm_head = "albert", "predictions"
    ignored_keys = ("down_scale_factor", "gap_size", "ln_type", "net_structure_type", "num_memory_blocks")

    model_type: Literal["albert"] = "albert"
    vocab_size: int = Field(30000, gt=0)
    embedding_size: int = Field(128, gt=0)
    hidden_size: int = Field(4096, gt=0)
    num_attention_heads: int = Field(64, gt=0)
    intermediate_size: int = Field(16384, gt=0)
    hidden_act: HfActivation = "gelu_new"
    hidden_dropout_prob: float = 0.0
    attention_probs_dropout_prob: float = 0.0
    num_hidden_groups: int = Field(1, gt=0)  # of consecutive layers that share weights
    inner_group_num: int = Field(1, gt=0)  # layers that stand for each of num_hidden_layers

    @model_validator(mode="after")
    def _check_groups(self) -> Self:
        if self.num_hidden_groups > self.num_hidden_layers:
            raise ValueError(
                f"num_hidden_groups is {self.num_hidden_groups}, more than num_hidden_layers, so that some would be "
                "unused; correct one"
            )
        return self

    def to_settings(self, task: str, names: Collection[str]) -> dict[str, Any]:
        inner = self.inner_group_num
        return super().to_settings(task, names) | {
            "depth": self.num_hidden_layers * inner,
            "layers": [["attention", "mlp"]] * inner if inner > 1 else [],
            "groups": self.num_hidden_groups,
            "embedding_width": self.embedding_size,
            "pool": "mean" if task == "encode" and not has_tensor(names, "pooler.weight") else "pooler",
            "next_sentence_head": has_tensor(names, "sop_classifier.classifier.weight"),
        }

    @classmethod
    def build_keys(cls, config: Any) -> dict[str, Any]:
        inner = max(1, len(config.layers))
        return super().build_keys(config) | {
            "embedding_size": config.embedding_width or config.width,
            "num_hidden_layers": max(1, config.depth // inner),
            "num_hidden_groups": config.groups,
            "inner_group_num": inner,
        }


def has_tensor(names: Collection[str], ending: str) -> bool:
    """Whether a checkpoint has a tensor with this ending. Without a checkpoint (no names), True."""
    return not names or any(name.endswith(ending) for name in names)


EMBEDDING = {
    "encoder.embed.table": "{prefix}.embeddings.word_embeddings",
    "encoder.embed.positions": "{prefix}.embeddings.position_embeddings",
    "encoder.embed.types.table": "{prefix}.embeddings.token_type_embeddings",
    "encoder.embed.norm": "{prefix}.embeddings.LayerNorm",
}
MLM_HEAD: NameMap = {
    "head.transform.dense": "cls.predictions.transform.dense",
    "head.transform.norm": "cls.predictions.transform.LayerNorm",
    "head.table": "cls.predictions.decoder",
    "head.bias": "cls.predictions.decoder.bias",
}
LABELS: NameMap = {"head.table": "classifier", "head.bias": "classifier.bias"}


def set_prefix(prefix: str, name_map: dict[str, str]) -> dict[str, str]:
    """A name map with the prefix of a base model."""
    return {name: hf_name.replace("{prefix}", prefix) for name, hf_name in name_map.items()}


def build_head_maps(pooler: str, sentence_order: str, mlm_head: NameMap) -> dict[str, NameMap]:
    """Tensor names of the heads, by task."""
    return {
        "masked": {"next_sentence_head.1.dense": pooler, "next_sentence_head.2": sentence_order, **mlm_head},
        "tag": LABELS,
        "classify": {"pool.1.dense": pooler, **LABELS},
        "answer": {"head": "qa_outputs"},
        "encode": {"pool.1.dense": pooler},
    }


def list_ignored(prefix: str, mlm_head: str = "cls.predictions") -> dict[str, str]:
    """Patterns of ignored tensors, each with the reason."""
    return {
        rf"{prefix}\.embeddings\.position_ids": COMPUTED,
        rf"{prefix}\.pooler\..*": "the head does not use it",
        rf"{re.escape(mlm_head)}\.bias": "transformers reads decoder.bias where the two are not tied",
    }


PROJECTIONS = ("query", "key", "value")
LAYER = "encoder.stack.layers.{i}"


def build_layer_map(layer: str) -> dict[str, str | WeightConverter]:
    """Tensor names of a layer of BERT, whose module is `layer`."""
    return {
        f"{LAYER}.parts.0.qkv.project": fuse(*(f"{layer}.attention.self.{part}" for part in PROJECTIONS)),
        f"{LAYER}.parts.0.out": f"{layer}.attention.output.dense",
        f"{LAYER}.norms.0": f"{layer}.attention.output.LayerNorm",
        f"{LAYER}.parts.1.inner": f"{layer}.intermediate.dense",
        f"{LAYER}.parts.1.outer": f"{layer}.output.dense",
        f"{LAYER}.norms.1": f"{layer}.output.LayerNorm",
    }


BERT = Architecture(
    hf_config=HfBertConfig,
    config=BertConfig,
    relatives=(
        AlbertConfig,
        BigBirdConfig,
        LinformerConfig,
    ),
    classes={
        "BertForPreTraining": "masked",
        "BertForMaskedLM": "masked",
        "BertForTokenClassification": "tag",
        "BertForSequenceClassification": "classify",
        "BertForQuestionAnswering": "answer",
        "BertModel": "encode",
    },
    name_map={
        **set_prefix("bert", EMBEDDING),
        **build_layer_map("bert.encoder.layer.{i}"),
    },
    head_maps=build_head_maps("bert.pooler.dense", "cls.seq_relationship", MLM_HEAD),
    required_tensors={"BertForPreTraining": "next_sentence_head.2.weight"},
    base_prefix="bert.",
    ignored=list_ignored("bert"),
    special_names={"bos": "cls", "eos": "sep"},
)

HF_GROUP = "albert.encoder.albert_layer_groups.{group}.albert_layers.{inner}"
ALBERT = Architecture(
    hf_config=HfAlbertConfig,
    config=AlbertConfig,
    relatives=(BertConfig,),
    classes={
        "AlbertForPreTraining": "masked",
        "AlbertForMaskedLM": "masked",
        "AlbertForTokenClassification": "tag",
        "AlbertForSequenceClassification": "classify",
        "AlbertForQuestionAnswering": "answer",
        "AlbertModel": "encode",
    },
    name_map={
        **set_prefix("albert", EMBEDDING),
        "encoder.embed.projection": "albert.encoder.embedding_hidden_mapping_in",
        f"{LAYER}.parts.0.qkv.project": fuse(*(f"{HF_GROUP}.attention.{part}" for part in PROJECTIONS)),
        f"{LAYER}.parts.0.out": f"{HF_GROUP}.attention.dense",
        f"{LAYER}.norms.0": f"{HF_GROUP}.attention.LayerNorm",
        f"{LAYER}.parts.1.inner": f"{HF_GROUP}.ffn",
        f"{LAYER}.parts.1.outer": f"{HF_GROUP}.ffn_output",
        f"{LAYER}.norms.1": f"{HF_GROUP}.full_layer_layer_norm",
    },
    head_maps=build_head_maps(
        "albert.pooler",
        "sop_classifier.classifier",
        {
            "head.transform.dense": "predictions.dense",
            "head.transform.norm": "predictions.LayerNorm",
            "head.table": "predictions.decoder",
            "head.bias": "predictions.decoder.bias",
        },
    ),
    required_tensors={"AlbertForPreTraining": "next_sentence_head.2.weight"},
    base_prefix="albert.",
    ignored=list_ignored("albert", "predictions"),
    special_names={"bos": "cls", "eos": "sep"},
)
