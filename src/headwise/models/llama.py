"""LLaMA (Touvron et al. 2023) and models of the same architecture.

Decoder-only: pre-norm with RMSNorm, rotary position embedding, SwiGLU, no biases, no dropout; from LLaMA 2's largest
size on, grouped-query attention. SmolLM2 (Allal et al. 2025) is the same at 135 million parameters, with tied input and
output embeddings.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from headwise.blocks.feedforward import Activation
from headwise.blocks.norm import RMSNormConfig
from headwise.blocks.positions.rotary import RotaryConfig
from headwise.blocks.residual import PreNormConfig
from headwise.blocks.stack import Encoder
from headwise.blocks.tables import AnyNorm, AnyPosition, AnyWiring
from headwise.models.assemble import TextFields, assemble, build_text_parts
from headwise.models.config import ModelConfig, PoolKind, Tie
from headwise.models.entry import Check, Entry
from headwise.models.init_weights import TextInitFields, init_normal
from headwise.models.layers import OneStackFields, build_stack
from headwise.text import BOS


class LlamaConfig(OneStackFields, TextFields, TextInitFields, ModelConfig):
    tasks = ("language-model", "classify")
    kind: Literal["llama"] = "llama"
    width: int = Field(4096, ge=1)
    heads: int = Field(32, ge=1)
    depth: int = Field(32, ge=1)
    hidden: int = Field(11008, ge=0)
    activation: Activation = "swiglu"
    positions: AnyPosition = RotaryConfig()
    wiring: AnyWiring = PreNormConfig()
    norm: AnyNorm = RMSNormConfig(eps=1e-5)
    dropout: float = Field(0.0, ge=0, lt=1)
    attention_bias: bool = False
    mlp_bias: bool = False
    scale_embeddings: bool = False
    tie: Tie = "none"
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


SIZES: dict[str, dict[str, Any]] = {
    "7b": {},
    "13b": {"width": 5120, "heads": 40, "depth": 40, "hidden": 13824},
    "70b": {"width": 8192, "heads": 64, "depth": 80, "hidden": 28672, "key_value_heads": 8},
    "3-8b": {"hidden": 14336, "key_value_heads": 8, "positions": {"kind": "rotary", "base": 500_000.0}},
    "135m": {
        "width": 576,
        "heads": 9,
        "key_value_heads": 3,
        "depth": 30,
        "hidden": 1536,
        "positions": {"kind": "rotary", "base": 100_000.0},
        "tie": "auto",
    },
    "tiny": {"width": 32, "heads": 4, "key_value_heads": 2, "depth": 2, "hidden": 64, "dropout": 0.1},
}
VOCABULARIES = {"3-8b": 128_256, "135m": 49_152}

ENTRY = Entry(
    name="llama",
    paper="Touvron et al., LLaMA: Open and Efficient Foundation Language Models",
    year=2023,
    family="decoder",
    config=LlamaConfig,
    sizes=SIZES,
    vocab=32_000,
    vocabularies=VOCABULARIES,
    published={"7b": "6.7B", "13b": "13.0B", "70b": "70B", "3-8b": "8B", "135m": "135M"},
    checks=(
        Check(
            "transformers.LlamaForCausalLM",
            "tests/parity/test_hf_decoders.py::test_logits_and_hidden_states_are_equal",
            "transformers",
        ),
    ),
)
