"""Mixtral of `transformers`: Mistral with a mixture of experts in every layer; no token is dropped."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from headwise.blocks.experts import ExpertsConfig
from headwise.config.base import Problems
from headwise.interop.hf.architecture import Architecture, stack_experts
from headwise.interop.hf.llama import FREQUENCIES, NAME_MAP, HfMistralConfig
from headwise.models.llama import LlamaConfig


class HfMixtralConfig(HfMistralConfig):
    aliases: ClassVar[Mapping[str, str]] = {"num_experts": "num_local_experts"}
    # router logits are returned beside the outputs
    ignored_keys: ClassVar[Collection[str]] = (*HfMistralConfig.ignored_keys, "output_router_logits")

    model_type: Literal["mixtral"] = "mixtral"  # type: ignore[assignment]
    rms_norm_eps: float = 1e-5
    sliding_window: int | None = Field(None, gt=0)
    num_experts_per_tok: int = Field(2, gt=0)
    num_local_experts: int = Field(8, gt=0)
    router_aux_loss_coef: float = Field(0.001, ge=0)
    router_jitter_noise: float = Field(0.0, ge=0, lt=1)
    rope_theta: float = Field(1_000_000.0, gt=0)

    @model_validator(mode="after")
    def _check_experts(self) -> Self:
        if self.num_experts_per_tok > self.num_local_experts:
            message = f"is {self.num_experts_per_tok}, but there are {self.num_local_experts} experts; correct it"
            raise Problems([(("num_experts_per_tok",), message)])
        return self

    def to_settings(self, task: str, names: Collection[str]) -> dict[str, Any]:
        experts = {
            "kind": "experts",
            "count": self.num_local_experts,
            "top_k": self.num_experts_per_tok,
            "normalise": True,
            "drop": False,
            "jitter": self.router_jitter_noise,
            "balance_loss": self.router_aux_loss_coef,
        }
        return super().to_settings(task, names) | {"feedforward": experts}

    @classmethod
    def list_values(cls, config: LlamaConfig, vocab: int) -> dict[str, Any]:
        values, experts = super().list_values(config, vocab), config.feedforward
        if not isinstance(experts, ExpertsConfig):
            return values
        return values | {
            "num_local_experts": experts.count,
            "num_experts_per_tok": experts.top_k,
            "router_jitter_noise": experts.jitter,
            "router_aux_loss_coef": experts.balance_loss,
        }


LAYER, HF_LAYER = "decoder.stack.layers.{i}.parts.1", "model.layers.{i}.block_sparse_moe"
MIXTRAL = Architecture(
    hf_config=HfMixtralConfig,
    config=LlamaConfig,
    classes={"MixtralForCausalLM": "language-model"},
    name_map={
        **NAME_MAP,
        f"{LAYER}.router": f"{HF_LAYER}.gate",
        f"{LAYER}.inner": stack_experts(f"{HF_LAYER}.experts.{{e}}.w1", f"{HF_LAYER}.experts.{{e}}.w3"),
        f"{LAYER}.outer": stack_experts(f"{HF_LAYER}.experts.{{e}}.w2"),
    },
    base_prefix="model.",
    ignored=FREQUENCIES,
)
