"""LLaMA of `transformers`, and Mistral, which is the same without a sliding window."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from headwise.config.base import Problems
from headwise.interop.hf.architecture import (
    ACTIVATIONS,
    COMPUTED,
    GATES,
    Architecture,
    HfGateActivation,
    HfTextConfig,
    NameMap,
    TokenId,
    fuse,
    name_activation,
)
from headwise.models.llama import LlamaConfig

BASE = 10_000.0


class HfLlamaConfig(HfTextConfig):
    ignored_keys = ("is_llama_config", "max_sequence_length", "pretraining_tp", "unsloth_fixed")

    model_type: Literal["llama"] = "llama"
    vocab_size: int = Field(32000, gt=0)
    hidden_size: int = Field(4096, gt=0)
    intermediate_size: int = Field(11008, gt=0)
    num_hidden_layers: int = Field(32, gt=0)
    num_attention_heads: int = Field(32, gt=0)
    num_key_value_heads: int | None = Field(None, gt=0)
    head_dim: int | None = Field(None, gt=0)
    hidden_act: HfGateActivation = "silu"
    max_position_embeddings: int = Field(2048, gt=0)
    rms_norm_eps: float = 1e-6
    attention_bias: bool = False
    mlp_bias: bool = False
    attention_dropout: float | None = 0.0
    tie_word_embeddings: bool = False
    bos_token_id: TokenId = 1
    eos_token_id: TokenId = 2
    rope_theta: float = Field(BASE, gt=0)  # `transformers` before version 5
    partial_rotary_factor: float | None = None
    rope_scaling: dict[str, Any] | None = None
    rope_parameters: dict[str, Any] | None = None
    rope_interleaved: Literal[False] = False

    @model_validator(mode="after")
    def _check_rotary(self) -> Self:
        key = "rope_scaling" if self.rope_scaling else "rope_parameters"
        kind, share = self.rotary.get("rope_type", self.rotary.get("type", "default")), "partial_rotary_factor"
        if kind != "default":
            raise Problems([((key,), f"rotary positions of type {kind!r} are not supported, only 'default'")])
        if (part := self.rotary.get(share, self.partial_rotary_factor)) not in (None, 1.0):
            path = (key, share) if share in self.rotary else (share,)
            raise Problems([(path, f"is {part!r}; only 1.0, all channels, is supported")])
        if not (isinstance(self.base, int | float) and self.base > 0):
            raise Problems([((key, "rope_theta"), f"is {self.base!r}; it must be a number above 0")])
        return self

    @property
    def rotary(self) -> dict[str, Any]:
        """The rotary settings: in `transformers` the older name takes precedence, as a whole table."""
        return self.rope_scaling or self.rope_parameters or {}

    @property
    def base(self) -> Any:
        return self.rotary.get("rope_theta", self.rope_theta)

    def tied_weights(self, class_name: str) -> dict[str, str]:
        return {"lm_head.weight": "model.embed_tokens.weight"} if self.tie_word_embeddings else {}

    @property
    def context(self) -> int:
        return self.max_position_embeddings

    def to_settings(self, task: str, names: Collection[str]) -> dict[str, Any]:
        return {
            "width": self.hidden_size,
            "depth": self.num_hidden_layers,
            "heads": self.num_attention_heads,
            "head_width": self.head_dim or 0,
            "key_value_heads": self.num_key_value_heads or 0,
            "hidden": self.intermediate_size,
            "activation": GATES[ACTIVATIONS[self.hidden_act]],
            "positions": {"kind": "rotary", "base": self.base},
            "norm": {"kind": "rms", "eps": self.rms_norm_eps},
            "attention_bias": self.attention_bias,
            "mlp_bias": self.mlp_bias,
            "attention_dropout": self.attention_dropout or 0.0,
        }

    @classmethod
    def from_model_config(cls, config: Any, vocab: int) -> Self:
        base = getattr(config.positions, "base", BASE)
        data = {
            "vocab_size": vocab,
            "hidden_size": config.width,
            "num_hidden_layers": config.depth,
            "num_attention_heads": config.heads,
            "head_dim": config.head_width or config.width // config.heads,
            "num_key_value_heads": config.key_value_heads or config.heads,
            "intermediate_size": config.hidden or 4 * config.width,
            "hidden_act": name_activation(config),
            "rms_norm_eps": config.norm.eps,
            "attention_bias": config.attention_bias,
            "mlp_bias": config.mlp_bias,
            "attention_dropout": config.attention_dropout,
            "tie_word_embeddings": config.tie != "none",
            "rope_theta": base,
            "rope_parameters": {"rope_type": "default", "rope_theta": base},
        }
        return cls.model_validate(data)


class HfMistralConfig(HfLlamaConfig):
    model_type: Literal["mistral"] = "mistral"  # type: ignore[assignment]
    intermediate_size: int = Field(14336, gt=0)
    num_key_value_heads: int | None = Field(8, gt=0)
    max_position_embeddings: int = Field(131072, gt=0)
    sliding_window: Literal[None]
    attention_bias: Literal[False] = False
    mlp_bias: Literal[False] = False


NAME_MAP: NameMap = {
    "decoder.embed.table": "model.embed_tokens",
    "decoder.stack.layers.{i}.norms.0": "model.layers.{i}.input_layernorm",
    "decoder.stack.layers.{i}.parts.0.qkv.project": fuse(
        "model.layers.{i}.self_attn.q_proj", "model.layers.{i}.self_attn.k_proj", "model.layers.{i}.self_attn.v_proj"
    ),
    "decoder.stack.layers.{i}.parts.0.out": "model.layers.{i}.self_attn.o_proj",
    "decoder.stack.layers.{i}.norms.1": "model.layers.{i}.post_attention_layernorm",
    "decoder.stack.layers.{i}.parts.1.inner": fuse("model.layers.{i}.mlp.gate_proj", "model.layers.{i}.mlp.up_proj"),
    "decoder.stack.layers.{i}.parts.1.outer": "model.layers.{i}.mlp.down_proj",
    "decoder.stack.final": "model.norm",
    "decoder.head.table": "lm_head",
}
FREQUENCIES = {r"model\.(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq": COMPUTED}

LLAMA = Architecture(
    hf_config=HfLlamaConfig,
    config=LlamaConfig,
    classes={"LlamaForCausalLM": "language-model"},
    name_map=NAME_MAP,
    base_prefix="model.",
    ignored=FREQUENCIES,
)
MISTRAL = Architecture(
    hf_config=HfMistralConfig,
    config=LlamaConfig,
    classes={"MistralForCausalLM": "language-model"},
    name_map=NAME_MAP,
    base_prefix="model.",
    ignored=FREQUENCIES,
)
