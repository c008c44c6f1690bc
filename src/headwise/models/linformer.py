"""Linformer (Wang et al. 2020, "Linformer: Self-Attention with Linear Complexity"): a masked language model of BERT's
layers with low-rank attention: keys and values are projected along the length.

As in RoBERTa (Liu et al. 2019), on which the paper builds, there is no next-sentence prediction. Of the paper's ways to
share the projections this has the smallest, layerwise: one matrix of (256, 512) for keys and values of all layers.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from headwise.blocks.feedforward import Activation
from headwise.blocks.mixers.lowrank import LowRankConfig
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


class LinformerConfig(OneStackFields, TextFields, TextInitFields, ModelConfig):
    tasks = ("masked", "tag", "classify", "answer", "encode")
    kind: Literal["linformer"] = "linformer"
    width: int = Field(768, ge=1)
    heads: int = Field(12, ge=1)
    activation: Activation = "gelu"
    mixer: AnyPart = LowRankConfig(sharing="layerwise")
    positions: AnyPosition = LearnedPositionsConfig(max_length=512)
    norm: AnyNorm = LayerNormConfig(eps=1e-12)
    scale_embeddings: bool = False
    embedding_norm: bool = True
    token_types: int = Field(0, ge=0)
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
    "tiny": {**BERT_SIZES["tiny"], "mixer": {"kind": "linformer", "rank": 8, "max_length": 64, "sharing": "layerwise"}},
}

ENTRY = Entry(
    name="linformer",
    paper="Wang et al., Linformer: Self-Attention with Linear Complexity",
    year=2020,
    family="encoder",
    config=LinformerConfig,
    sizes=SIZES,
    vocab=50_265,
    checks=(
        Check(
            "linformer (PyPI)",
            "tests/parity/test_linformer_package.py::test_outputs_are_those_of_the_package",
            "linformer",
        ),
    ),
)
