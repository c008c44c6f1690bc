"""FNet (Lee-Thorp et al. 2022), "FNet: Mixing Tokens with Fourier Transforms": BERT whose attention is a Fourier
transform without parameters.

Token, position and token type embeddings, a norm, a projection, dropout; post-norm layers with GELU; task heads as in
BERT. There is no attention, so `heads` has no effect unless another mixer is used.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from pydantic import Field
from torch import nn

from headwise.blocks.feedforward import Activation
from headwise.blocks.mixers.fourier import FourierConfig
from headwise.blocks.norm import LayerNormConfig
from headwise.blocks.positions.absolute import LearnedPositionsConfig
from headwise.blocks.stack import Embedding, Encoder
from headwise.blocks.tables import AnyNorm, AnyPart, AnyPosition
from headwise.blocks.token_embeddings import TokenTable
from headwise.models.assemble import TextFields, assemble, build_embedding, build_text_parts
from headwise.models.config import ModelConfig, PoolKind
from headwise.models.entry import Check, Entry
from headwise.models.init_weights import TextInitFields, init_normal
from headwise.models.layers import OneStackFields, build_stack
from headwise.text import BOS


class FNetConfig(OneStackFields, TextFields, TextInitFields, ModelConfig):
    tasks = ("masked", "tag", "classify", "answer", "encode")
    kind: Literal["fnet"] = "fnet"
    width: int = Field(768, ge=1)
    heads: int = Field(12, ge=1)
    activation: Activation = "gelu_tanh"
    mixer: AnyPart = FourierConfig()
    positions: AnyPosition = LearnedPositionsConfig(max_length=512)
    norm: AnyNorm = LayerNormConfig(eps=1e-12)
    scale_embeddings: bool = False
    embedding_norm: bool = True
    token_types: int = Field(4, ge=0)
    pool: PoolKind = "pooler"

    def build(self, vocab: int, outputs: int = 0, task: str = "") -> Any:
        parts = build_text_parts(
            self,
            encoder=lambda embedding: Encoder(embedding, build_stack(self, self.stack), prefix_id=BOS),
        )
        parts = replace(parts, embed=self._embed)
        model = assemble(self.resolve_task(task), parts, vocab, outputs)
        init_normal(model, self.init)
        return model

    def _embed(self, table: TokenTable) -> Embedding:
        """Embedding with a projection between norm and dropout, also where the widths are equal."""
        embedding = build_embedding(self, table)
        embedding.norm = nn.Sequential(embedding.norm, nn.Linear(table.embedding_dim, self.width))
        embedding.projection = nn.Identity()
        return embedding


SIZES: dict[str, dict[str, Any]] = {
    "base": {},
    "large": {"width": 1024, "heads": 16, "depth": 24},
    "tiny": {"width": 32, "heads": 4, "depth": 2, "positions": {"kind": "learned", "max_length": 64}},
}

ENTRY = Entry(
    name="fnet",
    paper="Lee-Thorp et al., FNet: Mixing Tokens with Fourier Transforms",
    year=2021,
    family="encoder",
    config=FNetConfig,
    sizes=SIZES,
    vocab=32_000,
    published={"base": "83M", "large": "238M"},
    checks=(
        Check(
            "transformers.FNetForPreTraining",
            "tests/parity/test_fnet_folders.py::test_outputs_are_equal_both_ways",
            "transformers",
        ),
    ),
)
