"""BERT and ALBERT of `transformers`."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, ClassVar, Literal, Self

from pydantic import Field

from headwise.interop.hf.architecture import (
    COMPUTED,
    OURS,
    Architecture,
    Id,
    Key,
    Plain,
    Theirs,
    activation_of,
    fused,
)
from headwise.models.bert import AlbertConfig, BertConfig
from headwise.models.bigbird import BigBirdConfig
from headwise.models.linformer import LinformerConfig

GUESSERS = ("ForPreTraining", "ForMaskedLM")


class TheirEncoder(Theirs):
    """What BERT and its kin have."""

    stem: ClassVar[str] = "bert"  # of the base model
    guess: ClassVar[str] = "cls.predictions"  # of the head that guesses hidden words

    hidden_size: int = Field(768, gt=0)
    num_hidden_layers: int = Field(12, gt=0)
    num_attention_heads: int = Field(12, gt=0)
    intermediate_size: int = Field(3072, gt=0)
    hidden_act: Plain = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    max_position_embeddings: int = Field(512, gt=0)
    type_vocab_size: int = Field(2, ge=0)
    layer_norm_eps: float = 1e-12
    tie_word_embeddings: bool = True
    pad_token_id: Id = 0
    position_embedding_type: Literal["absolute"] = "absolute"

    @property
    def context(self) -> int:
        return self.max_position_embeddings

    def tied(self, name: str) -> dict[str, str]:
        if not self.tie_word_embeddings or not name.endswith(GUESSERS):
            return {}
        return {
            f"{self.guess}.decoder.weight": f"{self.stem}.embeddings.word_embeddings.weight",
            f"{self.guess}.decoder.bias": f"{self.guess}.bias",
        }

    def ours(self, task: str, names: Collection[str]) -> dict[str, Any]:
        return {
            "width": self.hidden_size,
            "depth": self.num_hidden_layers,
            "heads": self.num_attention_heads,
            "hidden": self.intermediate_size,
            "activation": OURS[self.hidden_act],
            "positions": {"kind": "learned", "max_length": self.max_position_embeddings},
            "norm": {"kind": "layer", "eps": self.layer_norm_eps},
            "dropout": self.hidden_dropout_prob,
            "attention_dropout": self.attention_probs_dropout_prob,
            "token_types": self.type_vocab_size,
        }

    @classmethod
    def of(cls, config: Any, vocab: int) -> Self:
        return cls.model_validate(cls.common(config) | {"vocab_size": vocab})

    @classmethod
    def common(cls, config: Any) -> dict[str, Any]:
        return {
            "hidden_size": config.width,
            "num_hidden_layers": config.depth,
            "num_attention_heads": config.heads,
            "intermediate_size": config.hidden or 4 * config.width,
            "hidden_act": activation_of(config),
            "hidden_dropout_prob": config.dropout,
            "attention_probs_dropout_prob": config.attention_dropout,
            "max_position_embeddings": getattr(config.positions, "max_length", 512),
            "type_vocab_size": config.token_types,
            "layer_norm_eps": config.norm.eps,
            "tie_word_embeddings": config.tie not in ("none", "inputs"),
        }


class TheirBert(TheirEncoder):
    unread = (
        "directionality",
        *(f"pooler_{key}" for key in ("fc_size", "num_attention_heads", "num_fc_layers", "size_per_head", "type")),
    )

    model_type: Literal["bert"] = "bert"
    vocab_size: int = Field(30522, gt=0)

    def ours(self, task: str, names: Collection[str]) -> dict[str, Any]:
        return super().ours(task, names) | {
            "pool": "mean" if task == "encode" and not has(names, "pooler.dense.weight") else "pooler",
            "next_sentence_head": has(names, "cls.seq_relationship.weight"),
        }


class TheirAlbert(TheirEncoder):
    stem, guess = "albert", "predictions"
    unread = ("down_scale_factor", "gap_size", "ln_type", "net_structure_type", "num_memory_blocks")

    model_type: Literal["albert"] = "albert"
    vocab_size: int = Field(30000, gt=0)
    embedding_size: int = Field(128, gt=0)
    hidden_size: int = Field(4096, gt=0)
    num_attention_heads: int = Field(64, gt=0)
    intermediate_size: int = Field(16384, gt=0)
    hidden_act: Plain = "gelu_new"
    hidden_dropout_prob: float = 0.0
    attention_probs_dropout_prob: float = 0.0
    num_hidden_groups: Literal[1] = 1
    inner_group_num: Literal[1] = 1

    def ours(self, task: str, names: Collection[str]) -> dict[str, Any]:
        return super().ours(task, names) | {
            "embedding_width": self.embedding_size,
            "pool": "mean" if task == "encode" and not has(names, "pooler.weight") else "pooler",
            "next_sentence_head": has(names, "sop_classifier.classifier.weight"),
        }

    @classmethod
    def common(cls, config: Any) -> dict[str, Any]:
        return super().common(config) | {"embedding_size": config.embedding_width or config.width}


def has(names: Collection[str], ending: str) -> bool:
    """Whether a folder has a tensor, under whatever stem; where there is no folder to look into, it may have any."""
    return not names or any(name.endswith(ending) for name in names)


EMBEDDING = {
    "encoder.embed.table": "{stem}.embeddings.word_embeddings",
    "encoder.embed.positions": "{stem}.embeddings.position_embeddings",
    "encoder.embed.types.table": "{stem}.embeddings.token_type_embeddings",
    "encoder.embed.norm": "{stem}.embeddings.LayerNorm",
}
LABELS: dict[str, str | Key] = {"head.table": "classifier", "head.bias": "classifier.bias"}


def under(stem: str, keys: dict[str, str]) -> dict[str, str]:
    """The same names of another base model."""
    return {ours: theirs.replace("{stem}", stem) for ours, theirs in keys.items()}


def heads(pooler: str, order: str, guess: dict[str, str | Key]) -> dict[str, dict[str, str | Key]]:
    """What stands on the encoder, by task."""
    return {
        "masked": {"order.1.dense": pooler, "order.2": order, **guess},
        "tag": LABELS,
        "classify": {"pool.1.dense": pooler, **LABELS},
        "answer": {"head": "qa_outputs"},
        "encode": {"pool.1.dense": pooler},
    }


def leftovers(stem: str, guess: str = "cls.predictions") -> dict[str, str]:
    """Tensors of a folder that are left aside, with the reason."""
    return {
        rf"{stem}\.embeddings\.position_ids": COMPUTED,
        rf"{stem}\.pooler\..*": "their head does not read it",
        rf"{re.escape(guess)}\.bias": "transformers reads decoder.bias where the two are not tied",
    }


PROJECTIONS = ("query", "key", "value")
LAYER, INSIDE = "encoder.stack.layers.{i}", "bert.encoder.layer.{i}"
BERT = Architecture(
    theirs=TheirBert,
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
    keys={
        **under("bert", EMBEDDING),
        f"{LAYER}.parts.0.qkv.project": fused(*(f"{INSIDE}.attention.self.{part}" for part in PROJECTIONS)),
        f"{LAYER}.parts.0.out": f"{INSIDE}.attention.output.dense",
        f"{LAYER}.norms.0": f"{INSIDE}.attention.output.LayerNorm",
        f"{LAYER}.parts.1.inner": f"{INSIDE}.intermediate.dense",
        f"{LAYER}.parts.1.outer": f"{INSIDE}.output.dense",
        f"{LAYER}.norms.1": f"{INSIDE}.output.LayerNorm",
    },
    heads=heads(
        "bert.pooler.dense",
        "cls.seq_relationship",
        {
            "head.before.dense": "cls.predictions.transform.dense",
            "head.before.norm": "cls.predictions.transform.LayerNorm",
            "head.table": "cls.predictions.decoder",
            "head.bias": "cls.predictions.decoder.bias",
        },
    ),
    hints={"BertForPreTraining": "order.2.weight"},
    stem="bert.",
    ignored=leftovers("bert"),
    roles={"bos": "cls", "eos": "sep"},
)

GROUP = "albert.encoder.albert_layer_groups.0.albert_layers.0"
ALBERT = Architecture(
    theirs=TheirAlbert,
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
    keys={
        **under("albert", EMBEDDING),
        "encoder.embed.widen": "albert.encoder.embedding_hidden_mapping_in",
        f"{LAYER}.parts.0.qkv.project": fused(*(f"{GROUP}.attention.{part}" for part in PROJECTIONS)),
        f"{LAYER}.parts.0.out": f"{GROUP}.attention.dense",
        f"{LAYER}.norms.0": f"{GROUP}.attention.LayerNorm",
        f"{LAYER}.parts.1.inner": f"{GROUP}.ffn",
        f"{LAYER}.parts.1.outer": f"{GROUP}.ffn_output",
        f"{LAYER}.norms.1": f"{GROUP}.full_layer_layer_norm",
    },
    heads=heads(
        "albert.pooler",
        "sop_classifier.classifier",
        {
            "head.before.dense": "predictions.dense",
            "head.before.norm": "predictions.LayerNorm",
            "head.table": "predictions.decoder",
            "head.bias": "predictions.decoder.bias",
        },
    ),
    hints={"AlbertForPreTraining": "order.2.weight"},
    stem="albert.",
    ignored=leftovers("albert", "predictions"),
    roles={"bos": "cls", "eos": "sep"},
)
