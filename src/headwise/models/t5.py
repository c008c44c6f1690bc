"""T5 (Raffel et al. 2020), "Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer".

Encoder and decoder with pre-norm RMSNorm, no biases, a relative position bias for each head and bucket of distances
that the layers of a stack share, scores that are not divided by sqrt(head_width), one embedding table. Version 1.0 has
ReLU and scales outputs by 1/sqrt(width) before the tied output layer; version 1.1 has gated GELU and an untied output
layer.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from pydantic import Field
from torch import nn

from headwise.blocks.attention.multihead import AttentionConfig
from headwise.blocks.attention.scores import DotConfig
from headwise.blocks.heads import ScaleBy
from headwise.blocks.norm import RMSNormConfig
from headwise.blocks.positions.relative import T5BiasConfig
from headwise.blocks.residual import PreNormConfig
from headwise.blocks.stack import Encoder
from headwise.blocks.tables import AnyNorm, AnyPart, AnyPosition, AnyWiring
from headwise.models.assemble import ModelParts, TextFields, assemble, build_text_parts
from headwise.models.config import ModelConfig
from headwise.models.entry import Check, Entry
from headwise.models.init_weights import init_t5
from headwise.models.layers import TwoStackFields, build_stack


class T5Config(TwoStackFields, TextFields, ModelConfig):
    tasks = ("transduce", "language-model", "masked", "tag", "classify", "answer", "encode")
    kind: Literal["t5"] = "t5"
    head_width: int = Field(64, ge=0)
    mixer: AnyPart = AttentionConfig(score=DotConfig())
    cross_attention: AnyPart = AttentionConfig(attend_to="memory", score=DotConfig())
    positions: AnyPosition = T5BiasConfig()
    wiring: AnyWiring = PreNormConfig()
    norm: AnyNorm = RMSNormConfig()
    hidden_dropout: float = Field(0.1, ge=0, lt=1)
    attention_bias: bool = False
    mlp_bias: bool = False
    scale_embeddings: bool = False
    scale_outputs: bool = True  # by 1/sqrt(embedding width), as the tied table is initialised N(0, 1)
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
        return model


def scale_outputs(parts: ModelParts) -> ModelParts:
    """Scale the output layer's inputs by 1/sqrt(embedding width), or 1/sqrt(width) where the output layer is a full
    table or shares both factors of one: in each case logits have unit variance at initialisation."""

    def build_transform(tied: bool) -> nn.Module:
        full = not parts.factorise_outputs or (tied and parts.tie_projection)
        scale = ScaleBy((parts.output_width if full else parts.width) ** -0.5)
        projection = parts.output_transform(tied)
        return scale if projection is None else nn.Sequential(projection, scale)

    return replace(parts, output_transform=build_transform)


GATED: dict[str, Any] = {"activation": "geglu_tanh", "tie": "inputs", "scale_outputs": False}
SIZES: dict[str, dict[str, Any]] = {
    "base": {"width": 768, "heads": 12, "hidden": 3072, "depth": 12},
    "small": {},
    "large": {"width": 1024, "heads": 16, "hidden": 4096, "depth": 24},
    "3b": {"width": 1024, "heads": 32, "head_width": 128, "hidden": 16384, "depth": 24},
    "11b": {"width": 1024, "heads": 128, "head_width": 128, "hidden": 65536, "depth": 24},
    "v1.1-small": {"heads": 6, "hidden": 1024, "depth": 8, **GATED},
    "v1.1-base": {"width": 768, "heads": 12, "hidden": 2048, "depth": 12, **GATED},
    "v1.1-large": {"width": 1024, "heads": 16, "hidden": 2816, "depth": 24, **GATED},
    "tiny": {"width": 32, "heads": 4, "head_width": 8, "hidden": 64, "depth": 2},
}

ENTRY = Entry(
    name="t5",
    paper="Raffel et al., Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer",
    year=2019,
    family="encoder-decoder",
    config=T5Config,
    sizes=SIZES,
    vocab=32_128,
    published={"base": "220M", "small": "60M", "large": "770M", "3b": "2.8B", "11b": "11B"},
    checks=(
        Check(
            "transformers.T5ForConditionalGeneration",
            "tests/parity/test_t5_bart.py::test_outputs_are_equal_both_ways",
            "transformers",
        ),
    ),
)
