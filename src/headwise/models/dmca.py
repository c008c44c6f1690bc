"""Transformer-DMCA (Liu et al. 2018), "Generating Wikipedia by Summarizing Long Sequences".

A decoder-only model for inputs of up to 11,000 tokens: layers with local attention in blocks of 256 tokens alternate
with layers of memory-compressed attention to all of the past, L-M-L-M-L. For source and target pairs, train it as a
prefix language model (`task.prefix_lm`). `feedforward = "experts"` gives the paper's mixture of experts.

Sizes are those of 2017's base Transformer. The paper does not say which of the layers have experts; here all have.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from headwise.blocks.mixers.compressed import CompressedConfig
from headwise.blocks.mixers.sparse import LocalMixerConfig
from headwise.blocks.stack import Encoder
from headwise.blocks.tables import AnyPart
from headwise.models.assemble import TextFields, assemble, build_text_parts
from headwise.models.config import ModelConfig, PoolKind
from headwise.models.entry import Check, Entry
from headwise.models.init_weights import init_xavier
from headwise.models.layers import OneStackFields, Parts, build_stack


class DmcaConfig(OneStackFields, TextFields, ModelConfig):
    tasks = ("language-model", "classify")
    kind: Literal["dmca"] = "dmca"
    depth: int = Field(5, ge=1)
    mixer: AnyPart = LocalMixerConfig(block=256)
    compressed: AnyPart = CompressedConfig()  # mixer of every other layer
    pool: PoolKind = "last"

    def pattern(self, memory: bool = False) -> tuple[Parts, ...]:
        return (self.mixer, self.feedforward), (self.compressed, self.feedforward)

    def build(self, vocab: int, outputs: int = 0, task: str = "") -> Any:
        parts = build_text_parts(
            self,
            encoder=lambda embedding: Encoder(embedding, build_stack(self, self.stack, causal=True)),
            decoder=lambda memory: build_stack(self, self.stack, causal=True),
        )
        model = assemble(self.resolve_task(task), parts, vocab, outputs)
        init_xavier(model, self.width, self.output_width)
        return model


SIZES: dict[str, dict[str, Any]] = {
    "base": {},
    "tiny": {"width": 32, "heads": 4, "hidden": 64, "depth": 3, "mixer": {"kind": "local", "block": 4}},
}

ENTRY = Entry(
    name="dmca",
    paper="Liu et al., Generating Wikipedia by Summarizing Long Sequences",
    year=2018,
    family="decoder",
    config=DmcaConfig,
    sizes=SIZES,
    vocab=32_000,
    checks=(
        Check(
            "dense attention under the same mask, written out in float64",
            "tests/blocks/mixers/test_sparse.py::test_equal_to_dense_attention_under_the_mask",
        ),
        Check(
            "compressed attention's equations",
            "tests/blocks/mixers/test_compressed.py::test_equal_to_its_equations",
        ),
    ),
)
