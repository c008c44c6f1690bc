"""Masked language models: BERT (Devlin et al. 2019) and ALBERT (Lan et al. 2020).

BERT: token, position and token type embeddings, LayerNorm, dropout; post-norm layers with GELU; the masked language
model's head has a dense layer and a norm before the tied output layer; next-sentence prediction uses the first token.
ALBERT: all layers share their weights, and the embedding table is factorised.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from headwise.blocks.feedforward import Activation
from headwise.blocks.norm import LayerNormConfig
from headwise.blocks.positions.absolute import LearnedPositionsConfig
from headwise.blocks.stack import Encoder
from headwise.blocks.tables import AnyNorm, AnyPosition
from headwise.models.assemble import TextFields, assemble, build_text_parts
from headwise.models.config import ModelConfig, PoolKind
from headwise.models.entry import Check, Entry
from headwise.models.init_weights import TextInitFields, init_normal
from headwise.models.layers import OneStackFields, build_stack
from headwise.text import BOS


class BertConfig(OneStackFields, TextFields, TextInitFields, ModelConfig):
    tasks = ("masked", "tag", "classify", "answer", "encode")
    kind: Literal["bert"] = "bert"
    width: int = Field(768, ge=1)
    heads: int = Field(12, ge=1)
    activation: Activation = "gelu"
    positions: AnyPosition = LearnedPositionsConfig(max_length=512)
    norm: AnyNorm = LayerNormConfig(eps=1e-12)
    scale_embeddings: bool = False
    embedding_norm: bool = True
    token_types: int = Field(2, ge=0)
    pool: PoolKind = "pooler"

    def build(self, vocab: int, outputs: int = 0, task: str = "") -> Any:
        parts = build_text_parts(
            self,
            encoder=lambda embedding: Encoder(embedding, build_stack(self, self.stack), prefix_id=BOS),
        )
        model = assemble(self.resolve_task(task), parts, vocab, outputs)
        init_normal(model, self.init)
        return model


class AlbertConfig(OneStackFields, TextFields, TextInitFields, ModelConfig):
    tasks = ("masked", "tag", "classify", "answer", "encode")
    kind: Literal["albert"] = "albert"
    width: int = Field(768, ge=1)
    heads: int = Field(12, ge=1)
    activation: Activation = "gelu_tanh"
    positions: AnyPosition = LearnedPositionsConfig(max_length=512)
    norm: AnyNorm = LayerNormConfig(eps=1e-12)
    dropout: float = Field(0.0, ge=0, lt=1)
    shared: bool = True
    embedding_width: int = Field(128, ge=0)
    scale_embeddings: bool = False
    embedding_norm: bool = True
    token_types: int = Field(2, ge=0)
    pool: PoolKind = "pooler"

    def build(self, vocab: int, outputs: int = 0, task: str = "") -> Any:
        parts = build_text_parts(
            self,
            encoder=lambda embedding: Encoder(embedding, build_stack(self, self.stack), prefix_id=BOS),
        )
        model = assemble(self.resolve_task(task), parts, vocab, outputs)
        init_normal(model, self.init)
        return model


SIZES: dict[str, dict[str, Any]] = {
    "base": {},
    "large": {"width": 1024, "heads": 16, "depth": 24},
    "base-cased": {},
    "tiny": {"width": 32, "heads": 4, "depth": 2, "positions": {"kind": "learned", "max_length": 64}},
}
VOCABULARIES = {"base-cased": 28_996}
ALBERT_SIZES: dict[str, dict[str, Any]] = {
    "base": {},
    "large": {"width": 1024, "heads": 16, "depth": 24},
    "xlarge": {"width": 2048, "heads": 16, "depth": 24},
    "xxlarge": {"width": 4096, "heads": 64},
    "tiny": {**SIZES["tiny"], "embedding_width": 16, "dropout": 0.1},
}

BERT_ENTRY = Entry(
    name="bert",
    paper="Devlin et al., BERT: Pre-training of Deep Bidirectional Transformers",
    year=2018,
    family="encoder",
    config=BertConfig,
    sizes=SIZES,
    vocab=30_522,
    vocabularies=VOCABULARIES,
    published={"base": "110M", "large": "340M"},
    checks=(
        Check(
            "transformers.BertForPreTraining",
            "tests/parity/test_bert_kin.py::test_outputs_are_equal_both_ways",
            "transformers",
        ),
    ),
)

ALBERT_ENTRY = Entry(
    name="albert",
    paper="Lan et al., ALBERT: A Lite BERT for Self-supervised Learning of Language Representations",
    year=2019,
    family="encoder",
    config=AlbertConfig,
    sizes=ALBERT_SIZES,
    vocab=30_000,
    published={"base": "12M", "large": "18M", "xlarge": "60M", "xxlarge": "235M"},
    checks=(
        Check(
            "transformers.AlbertForPreTraining",
            "tests/parity/test_bert_kin.py::test_outputs_are_equal_both_ways",
            "transformers",
        ),
    ),
)
