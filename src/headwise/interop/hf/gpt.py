"""GPT (`openai-gpt`) and GPT-2 of `transformers`: transposed weights (Conv1D), fused queries, keys and values."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, ClassVar, Literal, Self

from pydantic import Field

from headwise.interop.hf.architecture import (
    ACTIVATIONS,
    COMPUTED,
    Architecture,
    HfActivation,
    HfTextConfig,
    NameMap,
    TokenId,
    name_activation,
    transpose,
)
from headwise.models.gpt import Gpt2Config, Gpt3Config, GptConfig

# Keys of the multiple choice head.
SUMMARY = frozenset(
    f"summary_{key}" for key in ("activation", "first_dropout", "hidden_size", "proj_to_labels", "type", "use_proj")
)


class HfGptBaseConfig(HfTextConfig):
    """The keys that both versions share."""

    aliases: ClassVar[Mapping[str, str]] = {
        "hidden_size": "n_embd",
        "max_position_embeddings": "n_positions",
        "num_attention_heads": "n_head",
        "num_hidden_layers": "n_layer",
    }
    ignored_keys = SUMMARY | {"n_ctx", "n_special", "predict_special_tokens"}

    word_embedding: ClassVar[str]  # tensor name

    n_positions: int = Field(512, gt=0)
    n_embd: int = Field(768, gt=0)
    n_layer: int = Field(12, gt=0)
    n_head: int = Field(12, gt=0)
    resid_pdrop: float = 0.1
    attn_pdrop: float = 0.1
    layer_norm_epsilon: float = 1e-5
    tie_word_embeddings: bool = True

    @property
    def context(self) -> int:
        return self.n_positions

    def tied_weights(self, class_name: str) -> dict[str, str]:
        return {"lm_head.weight": self.word_embedding} if self.tie_word_embeddings else {}

    def to_settings(self, task: str, names: Collection[str]) -> dict[str, Any]:
        return {
            "width": self.n_embd,
            "depth": self.n_layer,
            "heads": self.n_head,
            "positions": {"kind": "learned", "max_length": self.n_positions},
            "norm": {"kind": "layer", "eps": self.layer_norm_epsilon},
            "dropout": self.resid_pdrop,
            "attention_dropout": self.attn_pdrop,
        }

    @classmethod
    def from_model_config(cls, config: Any, vocab: int) -> Self:
        return cls.model_validate(cls.build_keys(config) | {"vocab_size": vocab})

    @classmethod
    def build_keys(cls, config: Any) -> dict[str, Any]:
        return {
            "n_positions": getattr(config.positions, "max_length", 512),
            "n_embd": config.width,
            "n_layer": config.depth,
            "n_head": config.heads,
            "resid_pdrop": config.dropout,
            "attn_pdrop": config.attention_dropout,
            "layer_norm_epsilon": config.norm.eps,
            "tie_word_embeddings": config.tie != "none",
        }


class HfGptConfig(HfGptBaseConfig):
    """DISCREPANCY: "gelu" means the tanh approximation; the exact GELU does not exist here."""

    word_embedding: ClassVar[str] = "transformer.tokens_embed.weight"

    model_type: Literal["openai-gpt"] = "openai-gpt"
    vocab_size: int = Field(40478, gt=0)
    afn: Literal["gelu", "relu", "silu", "swish"] = "gelu"

    def to_settings(self, task: str, names: Collection[str]) -> dict[str, Any]:
        return super().to_settings(task, names) | {
            "activation": "gelu_tanh" if self.afn == "gelu" else ACTIVATIONS[self.afn]
        }

    @classmethod
    def build_keys(cls, config: Any) -> dict[str, Any]:
        names = {"relu": "relu", "swish": "silu"}
        return super().build_keys(config) | {"afn": names.get(config.activation, "gelu")}


class HfGpt2Config(HfGptBaseConfig):
    word_embedding: ClassVar[str] = "transformer.wte.weight"
    ignored_keys = HfGptBaseConfig.ignored_keys | {"reorder_and_upcast_attn"}  # in float32 it changes nothing

    model_type: Literal["gpt2"] = "gpt2"
    vocab_size: int = Field(50257, gt=0)
    n_positions: int = Field(1024, gt=0)
    n_inner: int | None = Field(None, gt=0)
    activation_function: HfActivation = "gelu_new"
    bos_token_id: TokenId = 50256
    eos_token_id: TokenId = 50256
    scale_attn_weights: Literal[True] = True
    scale_attn_by_inverse_layer_idx: Literal[False] = False

    def to_settings(self, task: str, names: Collection[str]) -> dict[str, Any]:
        settings = {"hidden": self.n_inner or 0, "activation": ACTIVATIONS[self.activation_function]}
        return super().to_settings(task, names) | settings

    @classmethod
    def build_keys(cls, config: Any) -> dict[str, Any]:
        keys = {"n_inner": config.hidden or None, "activation_function": name_activation(config)}
        return super().build_keys(config) | keys


LAYER_MAP: NameMap = {
    "decoder.stack.layers.{i}.norms.0": "transformer.h.{i}.ln_1",
    "decoder.stack.layers.{i}.parts.0.qkv.project": transpose("transformer.h.{i}.attn.c_attn"),
    "decoder.stack.layers.{i}.parts.0.out": transpose("transformer.h.{i}.attn.c_proj"),
    "decoder.stack.layers.{i}.norms.1": "transformer.h.{i}.ln_2",
    "decoder.stack.layers.{i}.parts.1.inner": transpose("transformer.h.{i}.mlp.c_fc"),
    "decoder.stack.layers.{i}.parts.1.outer": transpose("transformer.h.{i}.mlp.c_proj"),
    "decoder.head.table": "lm_head",
}
MASKS = {r"(transformer\.)?h\.\d+\.attn\.(masked_)?bias": COMPUTED}

GPT = Architecture(
    hf_config=HfGptConfig,
    config=GptConfig,
    relatives=(
        Gpt2Config,
        Gpt3Config,
    ),
    classes={"OpenAIGPTLMHeadModel": "language-model"},
    name_map={
        "decoder.embed.table": "transformer.tokens_embed",
        "decoder.embed.positions": "transformer.positions_embed",
        **LAYER_MAP,
    },
    base_prefix="transformer.",
    ignored=MASKS,
)
GPT2 = Architecture(
    hf_config=HfGpt2Config,
    config=Gpt2Config,
    relatives=(
        GptConfig,
        Gpt3Config,
    ),
    classes={"GPT2LMHeadModel": "language-model"},
    name_map={
        "decoder.embed.table": "transformer.wte",
        "decoder.embed.positions": "transformer.wpe",
        **LAYER_MAP,
        "decoder.stack.final": "transformer.ln_f",
    },
    base_prefix="transformer.",
    ignored=MASKS,
)
