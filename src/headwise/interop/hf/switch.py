"""Switch Transformer (Fedus et al. 2022) of `transformers`: T5 with a mixture of experts in some layers."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from headwise.blocks.experts import ExpertsConfig
from headwise.interop.hf.architecture import (
    ACTIVATIONS,
    Architecture,
    HfActivation,
    HfTextConfig,
    TokenId,
    name_activation,
    stack_experts,
)
from headwise.interop.hf.t5 import T5, TIED_WEIGHTS, UNLIMITED, list_settings
from headwise.models.layers import Parts
from headwise.models.switch import SwitchConfig


class HfSwitchConfig(HfTextConfig):
    """Of the layers of a stack those are sparse whose number modulo its sparse step is 1; all with a step of 1, none
    with 0. An expert takes `expert_capacity` tokens of each row and drops the others. `tie_word_embeddings` also scales
    outputs; a checkpoint with several tables is loaded untied all the same."""

    aliases: ClassVar[Mapping[str, str]] = {
        "hidden_size": "d_model",
        "num_attention_heads": "num_heads",
        "num_hidden_layers": "num_layers",
    }
    # Of T5; of outputs beside logits; `transformers` does not use router_ignore_padding_tokens.
    ignored_keys = (
        "n_positions", "feed_forward_proj", "is_gated_act", "add_router_probs", "router_ignore_padding_tokens",
    )  # fmt: skip

    model_type: Literal["switch_transformers"] = "switch_transformers"
    is_encoder_decoder: bool = True  # type: ignore[assignment]  # false in SwitchTransformersEncoderModel
    vocab_size: int = Field(32128, gt=0)
    d_model: int = Field(768, gt=0)
    d_kv: int = Field(64, gt=0)
    d_ff: int = Field(2048, gt=0)
    num_layers: int = Field(12, gt=0)
    num_decoder_layers: int | None = Field(12, gt=0)
    num_heads: int = Field(12, gt=0)
    num_experts: int = Field(8, gt=0)
    expert_capacity: int = Field(64, gt=0)
    num_sparse_encoder_layers: int = Field(3, ge=0)
    num_sparse_decoder_layers: int = Field(3, ge=0)
    encoder_sparse_step: int | None = Field(None, ge=0)  # these two take precedence over the numbers of sparse layers
    decoder_sparse_step: int | None = Field(None, ge=0)
    router_bias: Literal[False] = False
    router_dtype: Literal["float32"] = "float32"
    router_jitter_noise: float = 0.01
    router_z_loss_coef: float = 0.001
    router_aux_loss_coef: float = 0.001
    relative_attention_num_buckets: int = Field(32, gt=0)
    relative_attention_max_distance: int = Field(128, gt=0)
    dropout_rate: float = 0.1
    layer_norm_epsilon: float = 1e-6
    dense_act_fn: HfActivation = "relu"
    tie_word_embeddings: bool = True
    pad_token_id: TokenId = 0
    eos_token_id: TokenId = 1
    decoder_start_token_id: TokenId = 0
    # Keys of older files; `transformers` supports one value of each.
    router_type: Literal["tokens_masked"] = "tokens_masked"
    num_selected_experts: Literal[1] = 1
    batch_prioritized_routing: Literal[False] = False

    @model_validator(mode="after")
    def _derive_steps(self) -> Self:
        """As `transformers` does: a stack without sparse layers by number has a step of its depth."""
        depths = {"encoder": self.num_layers, "decoder": self.num_decoder_layers or self.num_layers}
        for side, depth in depths.items():
            if getattr(self, f"{side}_sparse_step") is None:
                sparse = getattr(self, f"num_sparse_{side}_layers")
                object.__setattr__(self, f"{side}_sparse_step", depth // sparse if sparse else depth)
        return self

    @property
    def context(self) -> int:
        return UNLIMITED

    def tied_weights(self, class_name: str) -> dict[str, str]:
        if not self.tie_word_embeddings:
            return {}
        count = 1 if class_name.endswith("EncoderModel") else len(TIED_WEIGHTS)
        return {key: TIED_WEIGHTS[key] for key in list(TIED_WEIGHTS)[:count]}

    def to_settings(self, task: str, names: Collection[str]) -> dict[str, Any]:
        unlimited = self.expert_capacity >= UNLIMITED
        settings = list_settings(self) | {
            "activation": ACTIVATIONS[self.dense_act_fn],
            "scale_outputs": self.tie_word_embeddings,
            "experts": {
                "count": self.num_experts,
                "drop": not unlimited,
                "row_capacity": 0 if unlimited else self.expert_capacity,
                "jitter": self.router_jitter_noise,
                "balance_loss": self.router_aux_loss_coef,
                "z_loss": self.router_z_loss_coef,
            },
        }
        steps = (self.encoder_sparse_step, self.decoder_sparse_step)
        if steps[0] and len(set(steps)) == 1:
            return settings | {"expert_interval": steps[0]}
        config = SwitchConfig.model_validate(settings)
        for side, step in zip(("encoder", "decoder"), steps, strict=True):
            settings[side] = settings[side] | {"layers": build_pattern(config, step or 0, side == "decoder")}
        return settings

    @classmethod
    def from_model_config(cls, config: Any, vocab: int) -> Self:
        experts = config.experts
        data = {
            "vocab_size": vocab,
            "d_model": config.width,
            "d_kv": config.head_width or config.width // config.heads,
            "d_ff": config.hidden or 4 * config.width,
            "num_layers": config.encoder.depth,
            "num_decoder_layers": config.decoder.depth,
            "num_heads": config.heads,
            "num_experts": experts.count,
            "expert_capacity": max(1, experts.row_capacity) if experts.drop else UNLIMITED,
            "encoder_sparse_step": find_step(config, memory=False),
            "decoder_sparse_step": find_step(config, memory=True),
            "router_jitter_noise": experts.jitter,
            "router_z_loss_coef": experts.z_loss,
            "router_aux_loss_coef": experts.balance_loss,
            "relative_attention_num_buckets": getattr(config.positions, "buckets", 32),
            "relative_attention_max_distance": getattr(config.positions, "max_distance", 128),
            "dropout_rate": config.dropout,
            "layer_norm_epsilon": config.norm.eps,
            "dense_act_fn": name_activation(config),
            "tie_word_embeddings": config.scale_outputs,
        }
        return cls.model_validate(data)


def build_pattern(config: SwitchConfig, step: int, memory: bool) -> tuple[Parts, ...]:
    """The layers that repeat in a stack with a sparse step; 0: none is sparse."""
    if step:
        return config.replace(expert_interval=step).pattern(memory)
    return ((config.mixer, *((config.cross_attention,) if memory else ()), config.feedforward),)


def find_step(config: SwitchConfig, memory: bool) -> int:
    """The sparse step of a stack; that of its model if none gives its layers."""
    stack = config.stacks()[memory]
    if not stack.layers:
        return config.expert_interval
    layers = [stack.layers[i % len(stack.layers)] for i in range(stack.depth)]
    sparse = [i for i, parts in enumerate(layers) if isinstance(parts[-1], ExpertsConfig)]
    fitting = (step for step in range(1, stack.depth + 1) if sparse == [*range(min(1, step - 1), stack.depth, step)])
    return next(fitting, 0)


def rename_networks(side: str, last: int) -> dict[str, Any]:
    """Tensor names of feed-forward networks, sparse ones and dense ones."""
    layer, hf_layer = f"{side}.stack.layers.{{i}}.parts.{last}", f"{side}.block.{{i}}.layer.{last}.mlp"
    return {
        f"{layer}.router": f"{hf_layer}.router.classifier",
        f"{layer}.inner": stack_experts(f"{hf_layer}.experts.expert_{{e}}.wi"),
        f"{layer}.outer": stack_experts(f"{hf_layer}.experts.expert_{{e}}.wo"),
        f"{layer}.inner.weight": f"{hf_layer}.wi.weight",
        f"{layer}.outer.weight": f"{hf_layer}.wo.weight",
    }


SWITCH = Architecture(
    hf_config=HfSwitchConfig,
    config=SwitchConfig,
    classes={
        "SwitchTransformersForConditionalGeneration": "transduce",
        "SwitchTransformersEncoderModel": "encode",
    },
    name_map={**T5.name_map, **rename_networks("encoder", 1), **rename_networks("decoder", 2)},
    ignored=T5.ignored,
    special_names=T5.special_names,
    needs_cache=True,
)
