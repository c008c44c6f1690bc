"""T5 as the baseline of Narang et al. 2021, "Do Transformer Modifications Transfer Across Implementations and
Applications?".

T5-base with layer normalisation instead of RMSNorm, biases in the feed-forward network, a z-loss on the outputs, and
without dropout in pretraining. One table for source, target and outputs. The sizes beside `base` are the rows of the
paper's table 1 (`models/narang.py`), each a change of its settings.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from pydantic import Field
from torch import nn

from headwise.blocks.attention.multihead import AttentionConfig
from headwise.blocks.attention.scores import DotConfig
from headwise.blocks.heads import VocabularyHead
from headwise.blocks.norm import LayerNormConfig
from headwise.blocks.positions.relative import T5BiasConfig
from headwise.blocks.residual import PreNormConfig
from headwise.blocks.stack import Embedding, Encoder
from headwise.blocks.tables import AnyNorm, AnyPart, AnyPosition, AnyWiring
from headwise.models.assemble import TextFields, assemble, build_text_parts
from headwise.models.config import ModelConfig, Tie
from headwise.models.entry import Check, Entry
from headwise.models.init_weights import init_t5
from headwise.models.layers import TwoStackFields, build_stack
from headwise.models.narang import ROWS, Sizes
from headwise.models.t5 import SIZES as T5_SIZES
from headwise.models.t5 import scale_outputs


class T5NarangConfig(TwoStackFields, TextFields, ModelConfig):
    tasks = ("transduce", "language-model", "masked", "tag", "classify", "answer", "encode")
    kind: Literal["t5-narang"] = "t5-narang"
    width: int = Field(768, ge=1)
    heads: int = Field(12, ge=1)
    head_width: int = Field(64, ge=0)
    mixer: AnyPart = AttentionConfig(score=DotConfig())
    cross_attention: AnyPart = AttentionConfig(attend_to="memory", score=DotConfig())
    positions: AnyPosition = T5BiasConfig()
    wiring: AnyWiring = PreNormConfig()
    norm: AnyNorm = LayerNormConfig(eps=1e-6)
    dropout: float = Field(0.0, ge=0, lt=1)
    attention_bias: bool = False
    tie: Tie = "all"
    z_loss: float = Field(1e-4, ge=0)
    # false: tables N(0, 1), embeddings as they are; true: tables N(0, 1/width), embeddings times sqrt(width), for Adam
    scale_embeddings: bool = False
    scale_outputs: bool = True  # by 1/sqrt(width), where tables are N(0, 1)
    labels_from: Literal["encoder", "decoder"] = "encoder"  # side whose outputs the heads of classes and answers read

    def build(self, vocab: int, outputs: int = 0, task: str = "") -> Any:
        parts = build_text_parts(
            self,
            encoder=lambda embedding: Encoder(embedding, build_stack(self, self.encoder)),
            decoder=lambda memory: build_stack(self, self.decoder, causal=True, memory=memory),
        )
        parts = replace(parts, labels_from=self.labels_from)
        if self.scale_outputs:
            parts = scale_outputs(parts)
        model = assemble(self.resolve_task(task), parts, vocab, outputs)
        init_t5(model, self.width)
        if self.scale_embeddings:
            init_small_tables(model)
        return model


def init_small_tables(model: nn.Module) -> None:
    """Tables of embeddings and output layers N(0, 1/width), like other matrices."""
    for module in model.modules():
        if isinstance(module, Embedding | VocabularyHead) and isinstance(module.table, nn.Embedding):
            nn.init.normal_(module.table.weight, std=module.table.embedding_dim**-0.5)


SIZES: dict[str, dict[str, Any]] = {
    "base": ROWS[0].configure(Sizes()),
    "tiny": {**T5_SIZES["tiny"], "dropout": 0.1},  # for tests of training mode
    **{row.slug: row.configure(Sizes()) for row in ROWS[1:]},
}

ENTRY = Entry(
    name="t5-narang",
    paper="Narang et al., Do Transformer Modifications Transfer Across Implementations and Applications?",
    year=2021,
    family="encoder-decoder",
    config=T5NarangConfig,
    sizes=SIZES,
    vocab=Sizes().vocab,
    published={"base": ROWS[0].figures.parameters, **{row.slug: row.figures.parameters for row in ROWS[1:]}},
    checks=(
        Check(
            "transformers.T5ForConditionalGeneration with nn.LayerNorm and biases",
            "tests/parity/test_t5_narang.py::test_outputs_are_those_of_t5_with_layer_norm_and_biases",
            "transformers",
        ),
    ),
)
