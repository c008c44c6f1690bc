"""RetNet (Sun et al. 2023, "Retentive Network: A Successor to Transformer for Large Language Models").

Decoder-only: pre-norm layers of multi-scale retention, with rotary positions and heads of 256, and a feed-forward
network of twice the width; no biases. A text is generated with a state of constant size. Retention has 8 d^2
parameters and the feed-forward network 4 d^2, together as many as a Transformer's layer.

DISCREPANCY: the paper names no vocabulary; the sizes have that of the released code's example.

Reference: torchscale's RetNetDecoder.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field
from torch import nn

from headwise.blocks.feedforward import Activation
from headwise.blocks.mixers.retention import Retention, RetentionConfig
from headwise.blocks.norm import LayerNormConfig
from headwise.blocks.positions.rotary import RotaryConfig
from headwise.blocks.residual import PreNormConfig
from headwise.blocks.stack import Encoder
from headwise.blocks.tables import AnyNorm, AnyPart, AnyPosition, AnyWiring
from headwise.models.assemble import TextFields, assemble, build_text_parts
from headwise.models.config import ModelConfig, PoolKind
from headwise.models.entry import Check, Entry
from headwise.models.init_weights import init_xavier
from headwise.models.layers import OneStackFields, build_stack
from headwise.text import BOS


class RetNetConfig(OneStackFields, TextFields, ModelConfig):
    tasks = ("language-model", "classify")
    kind: Literal["retnet"] = "retnet"
    width: int = Field(2048, ge=1)
    heads: int = Field(8, ge=1)
    depth: int = Field(24, ge=1)
    hidden: int = Field(4096, ge=0)
    activation: Activation = "gelu"
    mixer: AnyPart = RetentionConfig()
    positions: AnyPosition = RotaryConfig()
    wiring: AnyWiring = PreNormConfig()
    norm: AnyNorm = LayerNormConfig(eps=1e-6)
    attention_bias: bool = False
    mlp_bias: bool = False
    pool: PoolKind = "last"

    def build(self, vocab: int, outputs: int = 0, task: str = "") -> Any:
        parts = build_text_parts(
            self,
            encoder=lambda embedding: Encoder(embedding, build_stack(self, self.stack, causal=True), prefix_id=BOS),
            decoder=lambda memory: build_stack(self, self.stack, causal=True),
        )
        model = assemble(self.resolve_task(task), parts, vocab, outputs)
        self.init_weights(model)
        return model

    def init_weights(self, model: nn.Module) -> None:
        """Xavier-uniform, the projections of retention with a gain of 2^-2.5, as in the released code."""
        init_xavier(model, self.width)
        for module in model.modules():
            if isinstance(module, Retention):
                for weight in (*module.qkv.project.weight.split(module.qkv.rows), module.gate.weight):
                    nn.init.xavier_uniform_(weight, gain=2**-2.5)


SIZES: dict[str, dict[str, Any]] = {
    "1.3b": {},
    "2.7b": {"width": 2560, "heads": 10, "depth": 32, "hidden": 5120},
    "6.7b": {"width": 4096, "heads": 16, "depth": 32, "hidden": 8192},
    "tiny": {"width": 32, "heads": 4, "depth": 2, "hidden": 64},
}

ENTRY = Entry(
    name="retnet",
    paper="Sun et al., Retentive Network: A Successor to Transformer for Large Language Models",
    year=2023,
    family="decoder",
    config=RetNetConfig,
    sizes=SIZES,
    vocab=64_000,
    published={"1.3b": "1.3B", "2.7b": "2.7B", "6.7b": "6.7B"},
    checks=(
        Check(
            "its recurrence and its parallel form, written out in float64",
            "tests/blocks/mixers/test_retention.py::test_parallel_recurrent_and_chunkwise_forms_agree",
        ),
    ),
)
