"""Decoder-only language models: GPT (Radford et al. 2018), GPT-2 (2019), GPT-3 (Brown et al. 2020).

GPT: post-norm, learned positions, GELU, tied input and output embeddings. GPT-2: pre-norm with a final norm, and a
smaller initialisation of the residual projections. GPT-3: every other layer has sliding window (banded) attention.

DISCREPANCY: the papers say GELU, the released code of all three computes its tanh form; so do we.
DISCREPANCY: GPT-3's paper does not say how wide the band is; the 128 here is ours. In its table of sizes 40 heads of
128 do not give the width 5,140 of the 13B model, which is 5,120 here; and 24 heads of 128 do not give the 2,048 of the
XL model, which has its 1.3 billion parameters with 16.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from headwise.blocks.attention.multihead import AttentionConfig
from headwise.blocks.attention.score_mods import WindowConfig
from headwise.blocks.feedforward import Activation
from headwise.blocks.positions.absolute import LearnedPositionsConfig
from headwise.blocks.residual import PreNormConfig
from headwise.blocks.stack import Encoder
from headwise.blocks.tables import AnyPosition, AnyWiring
from headwise.models.assemble import TextFields, assemble, build_text_parts
from headwise.models.config import ModelConfig, PoolKind
from headwise.models.entry import Check, Entry
from headwise.models.init_weights import TextInitFields, init_gpt2, init_normal
from headwise.models.layers import OneStackFields, Parts, build_stack
from headwise.text import BOS


class GptConfig(OneStackFields, TextFields, TextInitFields, ModelConfig):
    """GPT of 2018."""

    tasks = ("language-model", "classify")
    kind: Literal["gpt"] = "gpt"
    width: int = Field(768, ge=1)
    heads: int = Field(12, ge=1)
    activation: Activation = "gelu_tanh"
    positions: AnyPosition = LearnedPositionsConfig(max_length=512)
    scale_embeddings: bool = False
    pool: PoolKind = "last"

    def build(self, vocab: int, outputs: int = 0, task: str = "") -> Any:
        parts = build_text_parts(
            self,
            encoder=lambda embedding: Encoder(embedding, build_stack(self, self.stack, causal=True), prefix_id=BOS),
            decoder=lambda memory: build_stack(self, self.stack, causal=True),
        )
        model = assemble(self.resolve_task(task), parts, vocab, outputs)
        init_normal(model, self.init)
        return model


class Gpt2Config(OneStackFields, TextFields, TextInitFields, ModelConfig):
    """GPT-2."""

    tasks = ("language-model", "classify")
    kind: Literal["gpt2"] = "gpt2"
    width: int = Field(768, ge=1)
    heads: int = Field(12, ge=1)
    activation: Activation = "gelu_tanh"
    positions: AnyPosition = LearnedPositionsConfig(max_length=1024)
    wiring: AnyWiring = PreNormConfig()
    scale_embeddings: bool = False
    pool: PoolKind = "last"

    def build(self, vocab: int, outputs: int = 0, task: str = "") -> Any:
        parts = build_text_parts(
            self,
            encoder=lambda embedding: Encoder(embedding, build_stack(self, self.stack, causal=True), prefix_id=BOS),
            decoder=lambda memory: build_stack(self, self.stack, causal=True),
        )
        model = assemble(self.resolve_task(task), parts, vocab, outputs)
        init_gpt2(model, self.depth, self.init)
        return model


class Gpt3Config(OneStackFields, TextFields, TextInitFields, ModelConfig):
    """GPT-3: layers with dense and with banded attention alternate."""

    tasks = ("language-model", "classify")
    kind: Literal["gpt3"] = "gpt3"
    width: int = Field(768, ge=1)
    heads: int = Field(12, ge=1)
    activation: Activation = "gelu_tanh"
    positions: AnyPosition = LearnedPositionsConfig(max_length=2048)
    wiring: AnyWiring = PreNormConfig()
    scale_embeddings: bool = False
    pool: PoolKind = "last"
    window: int = Field(128, ge=1)  # sliding window of banded layers, including the token itself

    def pattern(self, memory: bool = False) -> tuple[Parts, ...]:
        banded = AttentionConfig(score_mods=(WindowConfig(left=self.window - 1, right=0),))
        return (self.mixer, self.feedforward), (banded, self.feedforward)

    def build(self, vocab: int, outputs: int = 0, task: str = "") -> Any:
        parts = build_text_parts(
            self,
            encoder=lambda embedding: Encoder(embedding, build_stack(self, self.stack, causal=True), prefix_id=BOS),
            decoder=lambda memory: build_stack(self, self.stack, causal=True),
        )
        model = assemble(self.resolve_task(task), parts, vocab, outputs)
        init_gpt2(model, self.depth, self.init)
        return model


TINY = {"width": 32, "heads": 4, "depth": 2, "positions": {"kind": "learned", "max_length": 64}}
SIZES: dict[str, dict[str, Any]] = {"base": {}, "tiny": TINY}
GPT2_SIZES: dict[str, dict[str, Any]] = {
    "small": {},
    "medium": {"width": 1024, "heads": 16, "depth": 24},
    "large": {"width": 1280, "heads": 20, "depth": 36},
    "xl": {"width": 1600, "heads": 25, "depth": 48},
    "tiny": TINY,
}
GPT3_SIZES: dict[str, dict[str, Any]] = {
    "175b": {"width": 12288, "heads": 96, "depth": 96},
    "small": {},
    "medium": {"width": 1024, "heads": 16, "depth": 24},
    "large": {"width": 1536, "heads": 16, "depth": 24},
    "xl": {"width": 2048, "heads": 16, "depth": 24},
    "2.7b": {"width": 2560, "heads": 32, "depth": 32},
    "6.7b": {"width": 4096, "heads": 32, "depth": 32},
    "13b": {"width": 5120, "heads": 40, "depth": 40},
    "tiny": {**TINY, "window": 2},
}

GPT_ENTRY = Entry(
    name="gpt",
    paper="Radford et al., Improving Language Understanding by Generative Pre-Training",
    year=2018,
    family="decoder",
    config=GptConfig,
    sizes=SIZES,
    vocab=40_478,
    published={"base": "117M"},
    checks=(
        Check(
            "transformers.OpenAIGPTLMHeadModel",
            "tests/parity/test_hf_decoders.py::test_logits_and_hidden_states_are_equal",
            "transformers",
        ),
    ),
)

GPT2_ENTRY = Entry(
    name="gpt2",
    paper="Radford et al., Language Models are Unsupervised Multitask Learners",
    year=2019,
    family="decoder",
    config=Gpt2Config,
    sizes=GPT2_SIZES,
    vocab=50_257,
    published={"small": "117M, corrected to 124M", "medium": "345M", "large": "762M", "xl": "1542M"},
    checks=(
        Check(
            "transformers.GPT2LMHeadModel",
            "tests/parity/test_hf_decoders.py::test_logits_and_hidden_states_are_equal",
            "transformers",
        ),
    ),
)

GPT3_ENTRY = Entry(
    name="gpt3",
    paper="Brown et al., Language Models are Few-Shot Learners",
    year=2020,
    family="decoder",
    config=Gpt3Config,
    sizes=GPT3_SIZES,
    vocab=50_257,
    published={
        "175b": "175.0B",
        "small": "125M",
        "medium": "350M",
        "large": "760M",
        "xl": "1.3B",
        "2.7b": "2.7B",
        "6.7b": "6.7B",
        "13b": "13.0B",
    },
    checks=(
        Check(
            "transformers.GPT2LMHeadModel where every layer is dense",
            "tests/parity/test_hf_decoders.py::test_gpt3_is_gpt2_where_every_layer_is_dense",
            "transformers",
        ),
        Check(
            "the same with masks for the bands",
            "tests/parity/test_hf_decoders.py::test_gpt3_hides_what_is_outside_the_band_in_every_other_layer",
            "transformers",
        ),
    ),
)
