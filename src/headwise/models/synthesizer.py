"""Synthesizer (Tay et al. 2020, "Synthesizer: Rethinking Self-Attention in Transformer Models"): the Transformer of
2017 with synthetic attention scores, which do not compare tokens, alone or added to dot products. Cross-attention is
unchanged.

The sizes are those of the paper's translation models, for up to 256 tokens: a learned random matrix of scores (base),
the same factorised, dense (scores from each query alone), and a mixture of random and dot-product, the paper's best.
"""

from __future__ import annotations

from typing import Any, Literal

from headwise.blocks.attention.multihead import AttentionConfig
from headwise.blocks.attention.synthesizer import RandomConfig
from headwise.blocks.stack import Encoder
from headwise.blocks.tables import AnyPart
from headwise.models.assemble import TextFields, assemble, build_text_parts
from headwise.models.config import ModelConfig
from headwise.models.entry import Check, Entry
from headwise.models.init_weights import init_xavier
from headwise.models.layers import TwoStackFields, build_stack
from headwise.models.transformer import SIZES as TRANSFORMER_SIZES

RANDOM = {"kind": "random", "max_length": 256}


class SynthesizerConfig(TwoStackFields, TextFields, ModelConfig):
    tasks = ("transduce", "language-model", "masked", "tag", "classify", "answer")
    kind: Literal["synthesizer"] = "synthesizer"
    mixer: AnyPart = AttentionConfig(score=RandomConfig(max_length=256))

    def build(self, vocab: int, outputs: int = 0, task: str = "") -> Any:
        parts = build_text_parts(
            self,
            encoder=lambda embedding: Encoder(embedding, build_stack(self, self.encoder)),
            decoder=lambda memory: build_stack(self, self.decoder, causal=True, memory=memory),
        )
        model = assemble(self.resolve_task(task), parts, vocab, outputs)
        init_xavier(model, self.width, self.output_width)
        return model


def with_score(**score: Any) -> dict[str, Any]:
    return {"mixer": {"kind": "attention", "score": score}}


SIZES: dict[str, dict[str, Any]] = {
    "base": {},
    "factorised": with_score(kind="factorised", max_length=256, rank=8),
    "dense": with_score(kind="dense", max_length=256),
    "mixture": with_score(kind="mixture", scores=["scaled", RANDOM]),
    "tiny": {**TRANSFORMER_SIZES["tiny"], **with_score(kind="random", max_length=64)},
}

ENTRY = Entry(
    name="synthesizer",
    paper="Tay et al., Synthesizer: Rethinking Self-Attention in Transformer Models",
    year=2020,
    family="encoder-decoder",
    config=SynthesizerConfig,
    sizes=SIZES,
    vocab=37_000,
    checks=(
        Check(
            "its equations, written out in float64",
            "tests/blocks/attention/test_synthesizer.py::test_a_random_synthesizer_has_only_values_and_a_table",
        ),
    ),
)
