"""Switch Transformer (Fedus et al. 2022): T5 with a mixture of experts in place of every other feed-forward network.

Matrices are initialised with a tenth of T5's variance (section 2.4). The sizes `narang-` are those of Narang et al.
2021, "Do Transformer Modifications Transfer Across Implementations and Applications?": LayerNorm, biases in the dense
networks as in the experts, and experts in every fourth one: 4, 8 and 12 of each stack.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field
from torch import nn

from headwise.blocks.attention.multihead import AttentionConfig
from headwise.blocks.attention.scores import DotConfig
from headwise.blocks.experts import INIT_SCALE, ExpertsConfig
from headwise.blocks.norm import RMSNormConfig
from headwise.blocks.positions.relative import T5BiasConfig
from headwise.blocks.residual import PreNormConfig
from headwise.blocks.stack import Encoder
from headwise.blocks.tables import AnyNorm, AnyPart, AnyPosition, AnyWiring
from headwise.models.assemble import TextFields, assemble, build_text_parts
from headwise.models.config import ModelConfig
from headwise.models.entry import Check, Entry
from headwise.models.init_weights import init_t5
from headwise.models.layers import Parts, TwoStackFields, build_stack
from headwise.models.t5 import SIZES as T5_SIZES
from headwise.models.t5 import scale_outputs


class SwitchConfig(TwoStackFields, TextFields, ModelConfig):
    tasks = ("transduce", "language-model", "masked", "tag", "classify", "answer", "encode")
    kind: Literal["switch"] = "switch"
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
    experts: ExpertsConfig = ExpertsConfig()
    expert_interval: int = Field(2, ge=1)  # one of so many layers has experts; 1: all
    expert_place: int = Field(2, ge=1)  # which layer of each such group has them, from 1; beyond the group: the last

    def pattern(self, memory: bool = False) -> tuple[Parts, ...]:
        mixers = (self.mixer, *((self.cross_attention,) if memory else ()))
        sparse = min(self.expert_place, self.expert_interval) - 1
        return tuple((*mixers, self.experts if i == sparse else self.feedforward) for i in range(self.expert_interval))

    def build(self, vocab: int, outputs: int = 0, task: str = "") -> Any:
        parts = build_text_parts(
            self,
            encoder=lambda embedding: Encoder(embedding, build_stack(self, self.encoder)),
            decoder=lambda memory: build_stack(self, self.decoder, causal=True, memory=memory),
        )
        if self.scale_outputs:
            parts = scale_outputs(parts)
        model = assemble(self.resolve_task(task), parts, vocab, outputs)
        init_t5(model, self.width)
        for module in model.modules():
            if isinstance(module, nn.Linear):
                module.weight.data.mul_(INIT_SCALE**0.5)
        return model


def make_size(size: str, count: int) -> dict[str, Any]:
    """A size of T5 with `count` experts."""
    return {**T5_SIZES[size], "experts": {"count": count}}


NARANG: dict[str, Any] = {
    **T5_SIZES["base"],
    "norm": "layer",
    "mlp_bias": True,
    "dropout": 0.0,
    "expert_interval": 4,
    "expert_place": 4,
}
SIZES: dict[str, dict[str, Any]] = {
    **{f"base-{count}": make_size("base", count) for count in (8, 16, 32, 64, 128, 256)},
    "large-128": make_size("large", 128),
    "xxl-128": {
        **{"width": 4096, "heads": 64, "hidden": 10240, "depth": 24},
        **{"activation": "geglu_tanh", "tie": "inputs", "scale_outputs": False, "experts": {"count": 128}},
    },
    "c-2048": {
        "width": 2080,
        "heads": 32,
        "hidden": 6144,
        "depth": 15,
        "expert_interval": 1,
        "experts": {"count": 2048},
    },
    "narang-top1": {**NARANG, "experts": {"count": 32, "capacity_factor": 1.2, "eval_capacity_factor": 1.2}},
    "narang-top2": {
        **NARANG,
        "experts": {"count": 32, "top_k": 2, "hidden": 1536, "capacity_factor": 2.0, "eval_capacity_factor": 2.0},
    },
    "tiny": {**T5_SIZES["tiny"], "experts": {"count": 4, "drop": False}},
}

ENTRY = Entry(
    name="switch",
    paper="Fedus et al., Switch Transformers: Scaling to Trillion Parameter Models; Narang et al. 2021",
    year=2021,
    family="encoder-decoder",
    config=SwitchConfig,
    sizes=SIZES,
    vocab=32_128,
    published={
        "base-128": "7B",
        "large-128": "26B",
        "xxl-128": "395B",
        "c-2048": "1571B",
        "narang-top1": "1100M",
        "narang-top2": "648M",
    },
    checks=(
        Check(
            "transformers.SwitchTransformersForConditionalGeneration",
            "tests/parity/test_switch.py::test_outputs_are_equal_where_every_token_finds_a_place",
            "transformers",
        ),
    ),
)
