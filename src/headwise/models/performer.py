"""Transformers in linear time: the linear Transformer (Katharopoulos et al. 2020), and the Performer (Choromanski et
al. 2021).

Both are the Transformer of 2017 with another mixer; the papers' baselines differ in nothing else. A decoder generates
with a state of constant size; cross-attention is softmax attention.

Sizes: the Performer's base is that of the paper's speed tests, `protein` that of its protein language model. The linear
Transformer's are those that generate the pixels of MNIST and CIFAR-10. DISCREPANCY: theirs predict a mixture of
logistics over a pixel's values, here each value is a token.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from headwise.blocks.mixers.favor import PerformerConfig
from headwise.blocks.mixers.linear import LinearConfig
from headwise.blocks.stack import Encoder
from headwise.blocks.tables import AnyPart
from headwise.models.assemble import TextFields, assemble, build_text_parts
from headwise.models.config import ModelConfig
from headwise.models.entry import Check, Entry
from headwise.models.init_weights import init_xavier
from headwise.models.layers import TwoStackFields, build_stack
from headwise.models.transformer import SIZES as TRANSFORMERS


class PerformerModelConfig(TwoStackFields, TextFields, ModelConfig):
    tasks = ("masked", "language-model", "transduce", "tag", "classify", "answer")
    kind: Literal["performer"] = "performer"
    mixer: AnyPart = PerformerConfig()

    def build(self, vocab: int, outputs: int = 0, task: str = "") -> Any:
        parts = build_text_parts(
            self,
            encoder=lambda embedding: Encoder(embedding, build_stack(self, self.encoder)),
            decoder=lambda memory: build_stack(self, self.decoder, causal=True, memory=memory),
        )
        model = assemble(self.resolve_task(task), parts, vocab, outputs)
        init_xavier(model, self.width, self.output_width)
        return model


class LinearTransformerConfig(TwoStackFields, TextFields, ModelConfig):
    tasks = ("language-model", "transduce", "masked", "tag", "classify", "answer")
    kind: Literal["linear-transformer"] = "linear-transformer"
    width: int = Field(256, ge=1)
    mixer: AnyPart = LinearConfig()

    def build(self, vocab: int, outputs: int = 0, task: str = "") -> Any:
        parts = build_text_parts(
            self,
            encoder=lambda embedding: Encoder(embedding, build_stack(self, self.encoder)),
            decoder=lambda memory: build_stack(self, self.decoder, causal=True, memory=memory),
        )
        model = assemble(self.resolve_task(task), parts, vocab, outputs)
        init_xavier(model, self.width, self.output_width)
        return model


SIZES: dict[str, dict[str, Any]] = {
    "base": {},
    "protein": {"hidden": 1024, "depth": 36},
    "tiny": {**TRANSFORMERS["tiny"], "mixer": {"kind": "performer", "features": 32}},
}
VOCABULARIES = {"protein": 29}  # 20 amino acids, 5 codes of rare or unknown ones, 4 special tokens
LINEAR_SIZES: dict[str, dict[str, Any]] = {
    "mnist": {"depth": 8},
    "cifar": {"depth": 16},
    "tiny": TRANSFORMERS["tiny"],
}

LINEAR_TRANSFORMER_ENTRY = Entry(
    name="linear-transformer",
    paper="Katharopoulos et al., Transformers are RNNs: Fast Autoregressive Transformers with Linear Attention",
    year=2020,
    family="encoder-decoder",
    config=LinearTransformerConfig,
    sizes=LINEAR_SIZES,
    vocab=256,
    checks=(
        Check(
            "its recurrence, unrolled in float64",
            "tests/blocks/mixers/test_linear.py::test_a_decoder_is_the_recurrence_of_the_paper",
        ),
    ),
)

PERFORMER_ENTRY = Entry(
    name="performer",
    paper="Choromanski et al., Rethinking Attention with Performers",
    year=2020,
    family="encoder-decoder",
    config=PerformerModelConfig,
    sizes=SIZES,
    vocab=37_000,
    vocabularies=VOCABULARIES,
    checks=(
        Check(
            "performer-pytorch",
            "tests/parity/test_performer_pytorch.py::test_the_softmax_kernel",
            "performer_pytorch",
        ),
        Check(
            "exact softmax attention",
            "tests/blocks/mixers/test_favor.py::test_many_features_approach_softmax_attention",
        ),
    ),
)
