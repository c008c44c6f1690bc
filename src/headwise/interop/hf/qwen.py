"""Qwen2 and Qwen3 of `transformers`: LLaMA with biases of queries, keys and values (Qwen2) or QK norm (Qwen3), and
sliding windows in some layers."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from headwise.config.base import Problems
from headwise.interop.hf.architecture import Architecture, TokenId
from headwise.interop.hf.llama import FREQUENCIES, NAME_MAP, HfLlamaConfig, find_window, sliding_attention
from headwise.models.llama import LlamaConfig

LayerType = Literal["full_attention", "sliding_attention"]


class HfQwenConfig(HfLlamaConfig):
    """The keys that Qwen2 and Qwen3 share."""

    vocab_size: int = Field(151936, gt=0)
    intermediate_size: int = Field(22016, gt=0)
    num_key_value_heads: int | None = Field(32, gt=0)
    max_position_embeddings: int = Field(32768, gt=0)
    bos_token_id: TokenId = None
    eos_token_id: TokenId = None
    mlp_bias: Literal[False] = False
    use_sliding_window: bool = False
    sliding_window: int | None = Field(4096, gt=0)
    max_window_layers: int = Field(28, ge=0)
    layer_types: tuple[LayerType, ...] | None = None

    @model_validator(mode="before")
    @classmethod
    def _drop_unused_window(cls, data: Any) -> Any:
        return data if data.get("use_sliding_window") else {**data, "sliding_window": None}

    @model_validator(mode="after")
    def _check_layer_types(self) -> Self:
        if self.layer_types is None:
            return self
        if len(self.layer_types) < self.num_hidden_layers:
            message = f"has {len(self.layer_types)} entries for {self.num_hidden_layers} layers; add the others"
            raise Problems([(("layer_types",), message)])
        if "sliding_attention" in self.layer_types and not (self.use_sliding_window and self.sliding_window):
            raise Problems([(("layer_types",), "has sliding layers, but use_sliding_window is false; correct one")])
        return self

    def list_windows(self) -> list[int | None]:
        """The sliding window of each layer; None where it has none."""
        window = self.sliding_window if self.use_sliding_window else None
        if self.layer_types is None:
            return [window if i >= self.max_window_layers else None for i in range(self.num_hidden_layers)]
        types = self.layer_types[: self.num_hidden_layers]
        return [window if kind == "sliding_attention" else None for kind in types]

    def to_attention(self, window: int | None) -> dict[str, Any]:
        """The settings of the attention of a layer."""
        return sliding_attention(window)

    def to_settings(self, task: str, names: Collection[str]) -> dict[str, Any]:
        windows = self.list_windows()
        settings = super().to_settings(task, names) | {"mixer": self.to_attention(windows[0])}
        if len(set(windows)) > 1:
            settings["layers"] = [[self.to_attention(window), {"kind": "mlp"}] for window in windows]
        return settings

    @classmethod
    def list_values(cls, config: LlamaConfig, vocab: int) -> dict[str, Any]:
        pattern = config.layers or config.pattern()
        windows = [find_window(pattern[i % len(pattern)][0]) for i in range(config.depth)]
        values = super().list_values(config, vocab)
        if not any(windows):
            return values
        types = ["sliding_attention" if window else "full_attention" for window in windows]
        window = max(window or 0 for window in windows)
        return values | {"use_sliding_window": True, "sliding_window": window, "layer_types": types}


class HfQwen2Config(HfQwenConfig):
    """Qwen2: biases of queries, keys and values, none of the output."""

    model_type: Literal["qwen2"] = "qwen2"  # type: ignore[assignment]
    attention_bias: Literal[False] = False

    def to_attention(self, window: int | None) -> dict[str, Any]:
        return sliding_attention(window, out_bias=False)

    def to_settings(self, task: str, names: Collection[str]) -> dict[str, Any]:
        return super().to_settings(task, names) | {"attention_bias": True}

    @classmethod
    def list_values(cls, config: LlamaConfig, vocab: int) -> dict[str, Any]:
        return super().list_values(config, vocab) | {"attention_bias": False, "mlp_bias": False}


class HfQwen3Config(HfQwenConfig):
    """Qwen3: QK norm."""

    model_type: Literal["qwen3"] = "qwen3"  # type: ignore[assignment]
    head_dim: int | None = Field(128, gt=0)

    def to_attention(self, window: int | None) -> dict[str, Any]:
        norm = {"kind": "rms", "eps": self.rms_norm_eps}
        return sliding_attention(window, score_mods=[{"kind": "qk_norm", "norm": norm}])

    @classmethod
    def list_values(cls, config: LlamaConfig, vocab: int) -> dict[str, Any]:
        return super().list_values(config, vocab) | {"mlp_bias": False}


QWEN2 = Architecture(
    hf_config=HfQwen2Config,
    config=LlamaConfig,
    classes={"Qwen2ForCausalLM": "language-model"},
    name_map=NAME_MAP,
    base_prefix="model.",
    ignored=FREQUENCIES,
)
QWEN3 = Architecture(
    hf_config=HfQwen3Config,
    config=LlamaConfig,
    classes={"Qwen3ForCausalLM": "language-model"},
    name_map={
        **NAME_MAP,
        "decoder.stack.layers.{i}.parts.0.score_mods.0.query_norm": "model.layers.{i}.self_attn.q_norm",
        "decoder.stack.layers.{i}.parts.0.score_mods.0.key_norm": "model.layers.{i}.self_attn.k_norm",
    },
    base_prefix="model.",
    ignored=FREQUENCIES,
)
