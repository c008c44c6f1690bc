"""LLaMA of `transformers`, and Mistral, which adds a sliding window."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, ClassVar, Literal, Self

from pydantic import Field

from headwise.blocks.attention.multihead import AttentionConfig
from headwise.blocks.attention.score_mods import WindowConfig
from headwise.blocks.part import PartConfig
from headwise.interop.hf.architecture import (
    ACTIVATIONS,
    COMPUTED,
    GATES,
    Architecture,
    HfGateActivation,
    NameMap,
    TokenId,
    fuse,
    name_activation,
)
from headwise.interop.hf.rope import HfRopeConfig, write_rope
from headwise.models.llama import LlamaConfig


class HfLlamaConfig(HfRopeConfig):
    ignored_keys: ClassVar[Collection[str]] = (
        "is_llama_config",
        "max_sequence_length",
        "pretraining_tp",
        "unsloth_fixed",
    )

    model_type: Literal["llama"] = "llama"
    vocab_size: int = Field(32000, gt=0)
    hidden_size: int = Field(4096, gt=0)
    intermediate_size: int = Field(11008, gt=0)
    num_hidden_layers: int = Field(32, gt=0)
    num_attention_heads: int = Field(32, gt=0)
    num_key_value_heads: int | None = Field(None, gt=0)
    head_dim: int | None = Field(None, gt=0)
    hidden_act: HfGateActivation = "silu"
    rms_norm_eps: float = 1e-6
    attention_bias: bool = False
    mlp_bias: bool = False
    attention_dropout: float | None = 0.0
    tie_word_embeddings: bool = False
    bos_token_id: TokenId = 1
    eos_token_id: TokenId = 2
    rope_interleaved: Literal[False] = False

    def tied_weights(self, class_name: str) -> dict[str, str]:
        return {"lm_head.weight": "model.embed_tokens.weight"} if self.tie_word_embeddings else {}

    def to_settings(self, task: str, names: Collection[str]) -> dict[str, Any]:
        return {
            "width": self.hidden_size,
            "depth": self.num_hidden_layers,
            "heads": self.num_attention_heads,
            "head_width": self.head_dim or 0,
            "key_value_heads": self.num_key_value_heads or 0,
            "hidden": self.intermediate_size,
            "activation": GATES[ACTIVATIONS[self.hidden_act]],
            "positions": self.positions,
            "norm": {"kind": "rms", "eps": self.rms_norm_eps},
            "attention_bias": self.attention_bias,
            "mlp_bias": self.mlp_bias,
            "attention_dropout": self.attention_dropout or 0.0,
        }

    @classmethod
    def from_model_config(cls, config: Any, vocab: int) -> Self:
        return cls.model_validate(cls.list_values(config, vocab))

    @classmethod
    def list_values(cls, config: LlamaConfig, vocab: int) -> dict[str, Any]:
        """The values of its keys for a Headwise model config."""
        return {
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
            **write_rope(config.positions),
        }


class HfMistralConfig(HfLlamaConfig):
    model_type: Literal["mistral"] = "mistral"  # type: ignore[assignment]
    intermediate_size: int = Field(14336, gt=0)
    num_key_value_heads: int | None = Field(8, gt=0)
    max_position_embeddings: int = Field(131072, gt=0)
    sliding_window: int | None = Field(4096, gt=0)
    attention_bias: Literal[False] = False
    mlp_bias: Literal[False] = False

    def to_settings(self, task: str, names: Collection[str]) -> dict[str, Any]:
        return super().to_settings(task, names) | {"mixer": sliding_attention(self.sliding_window)}

    @classmethod
    def list_values(cls, config: LlamaConfig, vocab: int) -> dict[str, Any]:
        values = {"sliding_window": find_window(config.mixer), "attention_bias": False, "mlp_bias": False}
        return super().list_values(config, vocab) | values


def sliding_attention(window: int | None, **settings: Any) -> dict[str, Any]:
    """The attention of a layer in which a token sees `window` tokens, itself among them; None: all before it."""
    mods = [*settings.pop("score_mods", ()), *([{"kind": "window", "left": window - 1, "right": 0}] if window else [])]
    return {"kind": "attention", "score_mods": mods, **settings}


def find_window(mixer: PartConfig) -> int | None:
    """The sliding window of an attention; None where it has none."""
    mods = mixer.score_mods if isinstance(mixer, AttentionConfig) else ()
    return next((mod.left + 1 for mod in mods if isinstance(mod, WindowConfig)), None)


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
