"""GPT-NeoX of `transformers` (also Pythia): attention beside feed-forward network, partial rotary positions."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal, Self

from pydantic import Field

from headwise.blocks.positions.rotary import RotaryConfig
from headwise.interop.hf.architecture import (
    ACTIVATIONS,
    COMPUTED,
    Architecture,
    HfActivation,
    TokenId,
    WeightConverter,
    name_activation,
)
from headwise.interop.hf.rope import BASE, HfRopeConfig, read_rope, write_rope
from headwise.models.llama import LlamaConfig


class HfGptNeoXConfig(HfRopeConfig):
    model_type: Literal["gpt_neox"] = "gpt_neox"
    vocab_size: int = Field(50432, gt=0)
    hidden_size: int = Field(6144, gt=0)
    num_hidden_layers: int = Field(44, gt=0)
    num_attention_heads: int = Field(64, gt=0)
    intermediate_size: int = Field(24576, gt=0)
    hidden_act: HfActivation = "gelu"
    attention_dropout: float = 0.0
    hidden_dropout: float = 0.0
    layer_norm_eps: float = 1e-5
    bos_token_id: TokenId = 0
    eos_token_id: TokenId = 2
    tie_word_embeddings: bool = False
    use_parallel_residual: bool = True
    attention_bias: bool = True
    is_decoder: bool = False  # type: ignore[assignment]  # it always is one
    rotary_emb_base: float = Field(BASE, gt=0)  # these two are its older names of rope_parameters
    rotary_pct: float = Field(0.25, gt=0, le=1)

    @property
    def positions(self) -> dict[str, Any]:
        return read_rope(
            self.rope_scaling or self.rope_parameters or {},
            "rope_scaling" if self.rope_scaling else "rope_parameters",
            theta=self.rotary_emb_base,
            fraction=self.rotary_pct,
            length=self.max_position_embeddings,
            original=self.original_max_position_embeddings,
        )

    def tied_weights(self, class_name: str) -> dict[str, str]:
        return {"lm_head.weight": "gpt_neox.embed_in.weight"} if self.tie_word_embeddings else {}

    def to_settings(self, task: str, names: Collection[str]) -> dict[str, Any]:
        return {
            "width": self.hidden_size,
            "depth": self.num_hidden_layers,
            "heads": self.num_attention_heads,
            "hidden": self.intermediate_size,
            "activation": ACTIVATIONS[self.hidden_act],
            "positions": self.positions,
            "norm": {"kind": "layer", "eps": self.layer_norm_eps},
            "wiring": "parallel" if self.use_parallel_residual else "pre",
            "attention_bias": self.attention_bias,
            "mlp_bias": True,
            "dropout": self.hidden_dropout,
            "attention_dropout": self.attention_dropout,
        }

    @classmethod
    def from_model_config(cls, config: LlamaConfig, vocab: int) -> Self:
        rope = write_rope(config.positions)
        if isinstance(config.positions, RotaryConfig):  # stated, since its default is not 1
            rope["rotary_pct"] = rope["rope_parameters"]["partial_rotary_factor"] = config.positions.fraction
        return cls.model_validate({
            "vocab_size": vocab,
            "hidden_size": config.width,
            "num_hidden_layers": config.depth,
            "num_attention_heads": config.heads,
            "intermediate_size": config.hidden or 4 * config.width,
            "hidden_act": name_activation(config),
            "layer_norm_eps": config.norm.eps,
            "use_parallel_residual": config.wiring.kind == "parallel",
            "attention_bias": config.attention_bias,
            "hidden_dropout": config.dropout,
            "attention_dropout": config.attention_dropout,
            "tie_word_embeddings": config.tie != "none",
            **rope,
        })  # fmt: skip


LAYER, HF_LAYER = "decoder.stack.layers.{i}", "gpt_neox.layers.{i}"
GPT_NEOX = Architecture(
    hf_config=HfGptNeoXConfig,
    config=LlamaConfig,
    classes={"GPTNeoXForCausalLM": "language-model"},
    name_map={
        "decoder.embed.table": "gpt_neox.embed_in",
        f"{LAYER}.norms.0": f"{HF_LAYER}.input_layernorm",
        f"{LAYER}.parts.0.qkv.project": WeightConverter(
            (f"{HF_LAYER}.attention.query_key_value",), write=lambda tensor, sizes: (tensor,), by_head=True
        ),
        f"{LAYER}.parts.0.out": f"{HF_LAYER}.attention.dense",
        f"{LAYER}.norms.1": f"{HF_LAYER}.post_attention_layernorm",
        f"{LAYER}.parts.1.inner": f"{HF_LAYER}.mlp.dense_h_to_4h",
        f"{LAYER}.parts.1.outer": f"{HF_LAYER}.mlp.dense_4h_to_h",
        "decoder.stack.final": "gpt_neox.final_layer_norm",
        "decoder.head.table": "lm_head",
    },
    base_prefix="gpt_neox.",
    stored_as={"lm_head.weight": "embed_out.weight"},
    ignored={
        r"gpt_neox\.layers\.\d+\.attention\.(masked_)?bias": COMPUTED,
        r"gpt_neox\.(layers\.\d+\.attention\.)?rotary_emb\.inv_freq": COMPUTED,
    },
)
