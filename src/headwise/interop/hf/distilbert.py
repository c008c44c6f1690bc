"""DistilBERT of `transformers`: BERT without token types and pooler; a classifier has a dense layer with ReLU."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any, Literal, Self

from pydantic import Field

from headwise.interop.hf.architecture import ACTIVATIONS, HfActivation, HfTextConfig, TokenId, fuse, name_activation
from headwise.interop.hf.bert import BERT, EMBEDDING, LABELS, LAYER, list_ignored, set_prefix

EPS = 1e-12  # of every norm; no key sets it


class HfDistilBertConfig(HfTextConfig):
    aliases = {  # noqa: RUF012
        "hidden_size": "dim",
        "num_attention_heads": "n_heads",
        "num_hidden_layers": "n_layers",
    }
    # Of the position table only initial values, as a checkpoint stores it; dropout of heads.
    ignored_keys = ("sinusoidal_pos_embds", "qa_dropout", "seq_classif_dropout")

    model_type: Literal["distilbert"] = "distilbert"
    vocab_size: int = Field(30522, gt=0)
    max_position_embeddings: int = Field(512, gt=0)
    n_layers: int = Field(6, gt=0)
    n_heads: int = Field(12, gt=0)
    dim: int = Field(768, gt=0)
    hidden_dim: int = Field(3072, gt=0)
    dropout: float = 0.1
    attention_dropout: float = 0.1
    activation: HfActivation = "gelu"
    pad_token_id: TokenId = 0
    tie_word_embeddings: bool = True

    @property
    def context(self) -> int:
        return self.max_position_embeddings

    def tied_weights(self, class_name: str) -> dict[str, str]:
        if not self.tie_word_embeddings or class_name != "DistilBertForMaskedLM":
            return {}
        return {"vocab_projector.weight": "distilbert.embeddings.word_embeddings.weight"}

    def to_settings(self, task: str, names: Collection[str]) -> dict[str, Any]:
        return {
            "width": self.dim,
            "depth": self.n_layers,
            "heads": self.n_heads,
            "hidden": self.hidden_dim,
            "activation": ACTIVATIONS[self.activation],
            "positions": {"kind": "learned", "max_length": self.max_position_embeddings},
            "norm": {"kind": "layer", "eps": EPS},
            "dropout": self.dropout,
            "attention_dropout": self.attention_dropout,
            "token_types": 0,
            "pool": "mean" if task == "encode" else "pooler_relu",
            "next_sentence_head": False,
        }

    @classmethod
    def from_model_config(cls, config: Any, vocab: int) -> Self:
        return cls(
            vocab_size=vocab,
            dim=config.width,
            n_layers=config.depth,
            n_heads=config.heads,
            hidden_dim=config.hidden or 4 * config.width,
            activation=name_activation(config),
            max_position_embeddings=getattr(config.positions, "max_length", 512),
            dropout=config.dropout,
            attention_dropout=config.attention_dropout,
            tie_word_embeddings=config.tie not in ("none", "inputs"),
        )


HF_LAYER = "distilbert.transformer.layer.{i}"
DISTILBERT = replace(
    BERT,
    hf_config=HfDistilBertConfig,
    relatives=(),
    classes={
        "DistilBertForMaskedLM": "masked",
        "DistilBertForTokenClassification": "tag",
        "DistilBertForSequenceClassification": "classify",
        "DistilBertForQuestionAnswering": "answer",
        "DistilBertModel": "encode",
    },
    name_map={
        **set_prefix("distilbert", EMBEDDING),
        f"{LAYER}.parts.0.qkv.project": fuse(*(f"{HF_LAYER}.attention.{part}_lin" for part in "qkv")),
        f"{LAYER}.parts.0.out": f"{HF_LAYER}.attention.out_lin",
        f"{LAYER}.norms.0": f"{HF_LAYER}.sa_layer_norm",
        f"{LAYER}.parts.1.inner": f"{HF_LAYER}.ffn.lin1",
        f"{LAYER}.parts.1.outer": f"{HF_LAYER}.ffn.lin2",
        f"{LAYER}.norms.1": f"{HF_LAYER}.output_layer_norm",
    },
    head_maps={
        "masked": {
            "head.transform.dense": "vocab_transform",
            "head.transform.norm": "vocab_layer_norm",
            "head.table": "vocab_projector",
            "head.bias": "vocab_projector.bias",
        },
        "tag": LABELS,
        "classify": {"pool.1.dense": "pre_classifier", **LABELS},
        "answer": {"head": "qa_outputs"},
        "encode": {},
    },
    required_tensors={},
    base_prefix="distilbert.",
    ignored=list_ignored("distilbert"),
)
