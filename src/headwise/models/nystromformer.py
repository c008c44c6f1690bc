"""Nystromformer (Xiong et al. 2021, "Nystromformer: A Nystrom-Based Algorithm for Approximating Self-Attention"): a
masked language model of BERT's layers with Nystrom attention, without next-sentence prediction. As in released weights
the table of positions begins with two unused rows.

Reference: transformers' NystromformerForMaskedLM (uw-madison/nystromformer-512).
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from headwise.blocks.feedforward import Activation
from headwise.blocks.mixers.nystrom import NystromConfig
from headwise.blocks.norm import LayerNormConfig
from headwise.blocks.positions.absolute import LearnedPositionsConfig
from headwise.blocks.stack import Encoder
from headwise.blocks.tables import AnyNorm, AnyPart, AnyPosition
from headwise.models.assemble import TextFields, assemble, build_text_parts
from headwise.models.bert import SIZES as BERT_SIZES
from headwise.models.config import ModelConfig, PoolKind
from headwise.models.entry import Check, Entry
from headwise.models.init_weights import TextInitFields, init_normal
from headwise.models.layers import OneStackFields, build_stack
from headwise.text import BOS


class NystromformerConfig(OneStackFields, TextFields, TextInitFields, ModelConfig):
    tasks = ("masked", "tag", "classify", "answer", "encode")
    kind: Literal["nystromformer"] = "nystromformer"
    width: int = Field(768, ge=1)
    heads: int = Field(12, ge=1)
    activation: Activation = "gelu_tanh"
    mixer: AnyPart = NystromConfig()
    positions: AnyPosition = LearnedPositionsConfig(max_length=510, offset=2)
    norm: AnyNorm = LayerNormConfig(eps=1e-5)
    scale_embeddings: bool = False
    embedding_norm: bool = True
    token_types: int = Field(2, ge=0)
    next_sentence_head: bool = False
    pool: PoolKind = "pooler_gelu_tanh"

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
    "tiny": {
        **BERT_SIZES["tiny"],
        "positions": {"kind": "learned", "max_length": 62, "offset": 2},
        "mixer": {"kind": "nystromformer", "landmarks": 4, "kernel": 5, "iterations": 2},
    },
}

ENTRY = Entry(
    name="nystromformer",
    paper="Xiong et al., Nystromformer: A Nystrom-Based Algorithm for Approximating Self-Attention",
    year=2021,
    family="encoder",
    config=NystromformerConfig,
    sizes=SIZES,
    vocab=30_000,
    checks=(
        Check(
            "transformers.NystromformerForMaskedLM",
            "tests/parity/test_nystromformer.py::test_logits_are_those_of_transformers",
            "transformers",
        ),
        Check(
            "exact softmax attention",
            "tests/blocks/mixers/test_nystrom.py::test_an_exact_pseudo_inverse_gives_softmax_attention",
        ),
    ),
)
