"""OPT of `transformers`: GPT-2 with ReLU, separate projections and a table of positions that begins with two rows
for padding."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from headwise.config.base import Problems
from headwise.interop.hf.architecture import (
    ACTIVATIONS,
    Architecture,
    HfActivation,
    HfTextConfig,
    TokenId,
    fuse,
    name_activation,
)
from headwise.models.gpt import Gpt2Config

OFFSET = 2  # rows of the position table before the first position


class HfOptConfig(HfTextConfig):
    ignored_keys = ("layerdrop",)  # a dropout of layers in training

    model_type: Literal["opt"] = "opt"
    vocab_size: int = Field(50272, gt=0)
    hidden_size: int = Field(768, gt=0)
    num_hidden_layers: int = Field(12, gt=0)
    ffn_dim: int = Field(3072, gt=0)
    max_position_embeddings: int = Field(2048, gt=0)
    do_layer_norm_before: bool = True
    word_embed_proj_dim: int | None = Field(None, gt=0)
    dropout: float = 0.1
    attention_dropout: float = 0.0
    num_attention_heads: int = Field(12, gt=0)
    activation_function: HfActivation = "relu"
    pad_token_id: TokenId = 1
    bos_token_id: TokenId = 2
    eos_token_id: TokenId = 2
    enable_bias: bool = True
    layer_norm_elementwise_affine: Literal[True] = True
    remove_final_layer_norm: Literal[False] = Field(False, exclude=True)  # with an underscore in front, in the file
    tie_word_embeddings: bool = True

    @model_validator(mode="before")
    @classmethod
    def _rename_private_key(cls, data: Any) -> Any:
        """pydantic has no fields that begin with an underscore."""
        private = "_remove_final_layer_norm"
        return {key.lstrip("_") if key == private else key: value for key, value in dict(data).items()}

    @model_validator(mode="after")
    def _check_projection(self) -> Self:
        if self.word_embed_proj_dim not in (None, self.hidden_size):
            supported = f"only hidden_size, {self.hidden_size}, is supported"
            message = f"is {self.word_embed_proj_dim}; {supported}; use transformers for this one"
            raise Problems([(("word_embed_proj_dim",), message)])
        return self

    @property
    def context(self) -> int:
        return self.max_position_embeddings

    def tied_weights(self, class_name: str) -> dict[str, str]:
        return {"lm_head.weight": "model.decoder.embed_tokens.weight"} if self.tie_word_embeddings else {}

    def to_settings(self, task: str, names: Collection[str]) -> dict[str, Any]:
        return {
            "width": self.hidden_size,
            "depth": self.num_hidden_layers,
            "heads": self.num_attention_heads,
            "hidden": self.ffn_dim,
            "activation": ACTIVATIONS[self.activation_function],
            "positions": {"kind": "learned", "max_length": self.max_position_embeddings, "offset": OFFSET},
            "norm": {"kind": "layer", "eps": 1e-5},
            "wiring": "pre" if self.do_layer_norm_before else "post",
            "attention_bias": self.enable_bias,
            "mlp_bias": self.enable_bias,
            "dropout": self.dropout,
            "attention_dropout": self.attention_dropout,
        }

    @classmethod
    def from_model_config(cls, config: Gpt2Config, vocab: int) -> Self:
        return cls.model_validate({
            "vocab_size": vocab,
            "hidden_size": config.width,
            "num_hidden_layers": config.depth,
            "num_attention_heads": config.heads,
            "ffn_dim": config.hidden or 4 * config.width,
            "activation_function": name_activation(config),
            "max_position_embeddings": getattr(config.positions, "max_length", 2048),
            "do_layer_norm_before": config.wiring.kind == "pre",
            "enable_bias": config.attention_bias,
            "dropout": config.dropout,
            "attention_dropout": config.attention_dropout,
            "tie_word_embeddings": config.tie != "none",
        })  # fmt: skip


LAYER, HF_LAYER = "decoder.stack.layers.{i}", "model.decoder.layers.{i}"
OPT = Architecture(
    hf_config=HfOptConfig,
    config=Gpt2Config,
    classes={"OPTForCausalLM": "language-model"},
    name_map={
        "decoder.embed.table": "model.decoder.embed_tokens",
        "decoder.embed.positions": "model.decoder.embed_positions",
        f"{LAYER}.norms.0": f"{HF_LAYER}.self_attn_layer_norm",
        f"{LAYER}.parts.0.qkv.project": fuse(*(f"{HF_LAYER}.self_attn.{part}_proj" for part in "qkv")),
        f"{LAYER}.parts.0.out": f"{HF_LAYER}.self_attn.out_proj",
        f"{LAYER}.norms.1": f"{HF_LAYER}.final_layer_norm",
        f"{LAYER}.parts.1.inner": f"{HF_LAYER}.fc1",
        f"{LAYER}.parts.1.outer": f"{HF_LAYER}.fc2",
        "decoder.stack.final": "model.decoder.final_layer_norm",
        "decoder.head.table": "lm_head",
    },
    base_prefix="model.",
)
