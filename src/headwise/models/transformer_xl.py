"""Transformer-XL (Dai et al. 2019), "Attentive Language Models beyond a Fixed-Length Context".

The layers of 2017 as a language model with segment-level recurrence: it reads a long text in segments, and each layer
also attends to its inputs of earlier segments (`memory_length` tokens, without gradients), so positions must be
relative. Train it with `task.order = "stream"`, so that segments follow one another from batch to batch.

The word-level models have an adaptive softmax that is tied to adaptive input embeddings; in the standard size all
clusters have one width, in the large one each is a quarter as wide as the one before. The byte-level models have a
plain softmax.

DISCREPANCY: the paper gives the large size on WikiText-103 257 million parameters. Its released settings, 18 layers,
have 285 million, as here; 16 layers with all projections tied have 257 million.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from headwise.blocks.attention.multihead import AttentionConfig
from headwise.blocks.positions.relative import TransformerXLRelativeConfig
from headwise.blocks.stack import Encoder
from headwise.blocks.tables import AnyPosition
from headwise.models.assemble import TextFields, assemble, build_text_parts
from headwise.models.config import ModelConfig
from headwise.models.entry import Check, Entry
from headwise.models.init_weights import TextInitFields, init_normal
from headwise.models.layers import OneStackFields, Parts, build_stack


class TransformerXLConfig(OneStackFields, TextFields, TextInitFields, ModelConfig):
    tasks = ("language-model",)
    kind: Literal["transformer-xl"] = "transformer-xl"
    width: int = Field(410, ge=1)
    heads: int = Field(10, ge=1)
    depth: int = Field(16, ge=1)
    hidden: int = Field(2100, ge=0)
    positions: AnyPosition = TransformerXLRelativeConfig()
    hidden_dropout: float = Field(0.1, ge=0, lt=1)
    attention_bias: bool = False
    output_bias: bool = True
    memory_length: int = Field(150, ge=0)  # tokens of earlier segments that each layer attends to

    def pattern(self, memory: bool = False) -> tuple[Parts, ...]:
        return ((AttentionConfig(memory_length=self.memory_length), self.feedforward),)

    def build(self, vocab: int, outputs: int = 0, task: str = "") -> Any:
        parts = build_text_parts(
            self,
            encoder=lambda embedding: Encoder(embedding, build_stack(self, self.stack)),
            decoder=lambda memory: build_stack(self, self.stack, causal=True),
        )
        model = assemble(self.resolve_task(task), parts, vocab, outputs)
        init_normal(model, self.init)
        return model


CLUSTERS: dict[str, Any] = {"kind": "adaptive", "cutoffs": [20_000, 40_000, 200_000]}  # of 267,735 words
NARROWER: dict[str, Any] = {**CLUSTERS, "div_value": 4, "projections": "all"}
SIZES: dict[str, dict[str, Any]] = {
    "wt103": {"output_layer": {**CLUSTERS, "div_value": 1}},
    "wt103-large": {
        "width": 1024,
        "heads": 16,
        "depth": 18,
        "hidden": 4096,
        "memory_length": 384,
        "token_embedding": NARROWER,
        "output_layer": {**NARROWER, "tie_projections": "tails"},
    },
    "enwik8": {"width": 512, "heads": 8, "depth": 12, "hidden": 2048, "memory_length": 512},
    "enwik8-large": {"width": 1024, "heads": 8, "depth": 24, "hidden": 3072, "memory_length": 768},
    "tiny": {"width": 32, "heads": 4, "depth": 2, "hidden": 64, "memory_length": 16},
}
VOCABULARIES = {"enwik8": 204, "enwik8-large": 204}

ENTRY = Entry(
    name="transformer-xl",
    paper="Dai et al., Transformer-XL: Attentive Language Models beyond a Fixed-Length Context",
    year=2019,
    family="decoder",
    config=TransformerXLConfig,
    sizes=SIZES,
    vocab=267_735,
    vocabularies=VOCABULARIES,
    published={"wt103": "151M", "wt103-large": "257M", "enwik8": "41M", "enwik8-large": "277M"},
    checks=(
        Check(
            "its equations, unrolled in float64",
            "tests/parity/test_xl.py::test_two_segments_are_the_papers_equations",
        ),
        Check(
            "its adaptive softmax, tied to adaptive embeddings, word by word in float64",
            "tests/parity/test_xl.py::test_words_of_rare_clusters_have_the_papers_probabilities",
        ),
        Check(
            "the attention of transformers.XLNetModel",
            "tests/parity/test_xl.py::test_attention_is_that_of_xlnet",
            "transformers",
        ),
    ),
)
