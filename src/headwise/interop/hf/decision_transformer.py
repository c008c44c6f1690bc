"""Decision Transformer of `transformers`: GPT-2 with a table of positions of which one vector is added everywhere.

The vector becomes part of the bias of the LayerNorm before it. A written folder has zeros instead, and zeros for the
table of words, which nothing reads.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, Literal, Self

from pydantic import Field
from torch import Tensor

from headwise.interop.hf.architecture import (
    ACTIVATIONS,
    COMPUTED,
    Architecture,
    HfActivation,
    HfConfig,
    WeightConverter,
    name_activation,
    transpose,
)
from headwise.models.decision_transformer import DecisionTransformerConfig

POSITIONS, WORDS = 1024, 1  # rows of tables in a written folder, the defaults of `transformers`


class HfAgentConfig(HfConfig):
    """The `config.json` of a model that acts in an environment, of which the folder says nothing."""


class HfDecisionTransformerConfig(HfAgentConfig):
    aliases: ClassVar[Mapping[str, str]] = {
        "max_position_embeddings": "n_positions",
        "num_attention_heads": "n_head",
        "num_hidden_layers": "n_layer",
    }
    # Of a table that nothing reads, and of half precision.
    ignored_keys = frozenset({"vocab_size", "reorder_and_upcast_attn", "tie_word_embeddings"})

    model_type: Literal["decision_transformer"] = "decision_transformer"
    state_dim: int = Field(17, gt=0)
    act_dim: int = Field(4, gt=0)
    hidden_size: int = Field(128, gt=0)
    max_ep_len: int = Field(4096, gt=0)
    action_tanh: bool = True
    n_positions: int = Field(1024, gt=0)  # rows of a table, of which the first is read
    n_layer: int = Field(3, gt=0)
    n_head: int = Field(1, gt=0)
    n_inner: int | None = Field(None, gt=0)
    activation_function: HfActivation = "relu"
    resid_pdrop: float = 0.1
    attn_pdrop: float = 0.1
    layer_norm_epsilon: float = 1e-5
    scale_attn_weights: Literal[True] = True
    scale_attn_by_inverse_layer_idx: Literal[False] = False

    def to_settings(self, task: str, names: Collection[str]) -> dict[str, Any]:
        return {
            "observation": (self.state_dim,),
            "actions": self.act_dim,
            "width": self.hidden_size,
            "max_steps": self.max_ep_len,
            "action_tanh": self.action_tanh,
            "depth": self.n_layer,
            "heads": self.n_head,
            "hidden": self.n_inner or 0,
            "activation": ACTIVATIONS[self.activation_function],
            "dropout": self.resid_pdrop,
            "attention_dropout": self.attn_pdrop,
            "norm": {"kind": "layer", "eps": self.layer_norm_epsilon},
        }

    @classmethod
    def from_model_config(cls, config: Any, vocab: int) -> Self:
        data = {
            "state_dim": config.observation[0],
            "act_dim": config.actions,
            "hidden_size": config.width,
            "max_ep_len": config.max_steps,
            "action_tanh": config.action_tanh,
            "n_layer": config.depth,
            "n_head": config.heads,
            "n_inner": config.hidden or None,
            "activation_function": name_activation(config),
            "resid_pdrop": config.dropout,
            "attn_pdrop": config.attention_dropout,
            "layer_norm_epsilon": config.norm.eps,
        }
        return cls.model_validate(data)


def add_first_position(parts: Sequence[Tensor]) -> Tensor:
    """The bias of the LayerNorm with the vector that is added to all its outputs."""
    bias, positions, _ = parts
    return bias + positions[0]


def write_no_positions(bias: Tensor, sizes: Sequence[int]) -> Sequence[Tensor]:
    return bias, bias.new_zeros(POSITIONS, len(bias)), bias.new_zeros(WORDS, len(bias))


LAYER, HF_LAYER = "stack.layers.{i}", "encoder.h.{i}"
DECISION_TRANSFORMER = Architecture(
    hf_config=HfDecisionTransformerConfig,
    config=DecisionTransformerConfig,
    classes={"DecisionTransformerModel": "act"},
    name_map={
        "embed.norm.bias": WeightConverter(
            ("embed_ln.bias", "encoder.wpe.weight", "encoder.wte.weight"), add_first_position, write_no_positions
        ),
        "embed.norm": "embed_ln",
        "embed.returns": "embed_return",
        "embed.observations": "embed_state",
        "embed.actions": "embed_action",
        "embed.steps": "embed_timestep",
        f"{LAYER}.norms.0": f"{HF_LAYER}.ln_1",
        f"{LAYER}.parts.0.qkv.project": transpose(f"{HF_LAYER}.attn.c_attn"),
        f"{LAYER}.parts.0.out": transpose(f"{HF_LAYER}.attn.c_proj"),
        f"{LAYER}.norms.1": f"{HF_LAYER}.ln_2",
        f"{LAYER}.parts.1.inner": transpose(f"{HF_LAYER}.mlp.c_fc"),
        f"{LAYER}.parts.1.outer": transpose(f"{HF_LAYER}.mlp.c_proj"),
        "stack.final": "encoder.ln_f",
        "predict_action": "predict_action.0",
        "predict_observation": "predict_state",
        "predict_return": "predict_return",
    },
    ignored={r"encoder\.h\.\d+\.attn\.(masked_)?bias": COMPUTED},
)
