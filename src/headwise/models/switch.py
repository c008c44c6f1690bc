"""Switch Transformer (Fedus et al. 2022): T5 with experts in the place of every other feed-forward network.

Matrices begin with a tenth of T5's variance (section 2.4). The sizes `narang-` are those of Narang et al. 2021,
"Do Transformer Modifications Transfer Across Implementations and Applications?": LayerNorm, biases in the dense
networks as in the experts, and experts in every fourth one.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field
from torch import nn

from headwise.blocks.experts import SCALE, ExpertsConfig
from headwise.blocks.stack import Stack
from headwise.models.entry import Check, Entry
from headwise.models.t5 import SIZES as T5_SIZES
from headwise.models.t5 import T5Config
from headwise.models.transformer_base import StackConfig


class SwitchConfig(T5Config):
    kind: Literal["switch"] = "switch"  # type: ignore[assignment]
    experts: ExpertsConfig = ExpertsConfig()
    expert_interval: int = Field(2, ge=1)  # layers, of which the second has experts; 1: all have

    def init_weights(self, model: nn.Module) -> None:
        super().init_weights(model)
        for module in model.modules():
            if isinstance(module, nn.Linear):
                module.weight.data.mul_(SCALE**0.5)

    def _stack(self, stack: StackConfig, causal: bool, memory: bool = False) -> Stack:
        *mixers, dense = self.layer(memory)
        sparse = min(1, self.expert_interval - 1)
        turns = tuple((*mixers, self.experts if i == sparse else dense) for i in range(self.expert_interval))
        return super()._stack(stack if stack.layers else stack.changed(layers=turns), causal, memory)


def sized(size: str, count: int) -> dict[str, Any]:
    """A size of T5 with so many experts."""
    return {**T5_SIZES[size], "experts": {"count": count}}


NARANG: dict[str, Any] = {**T5_SIZES["base"], "norm": "layer", "mlp_bias": True, "dropout": 0.0, "expert_interval": 4}
SIZES: dict[str, dict[str, Any]] = {
    **{f"base-{count}": sized("base", count) for count in (8, 16, 32, 64, 128, 256)},
    "large-128": sized("large", 128),
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
