"""Perceiver IO (Jaegle et al. 2022) of `transformers` for texts: masked language models and classifiers."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from headwise.blocks.latents import PerceiverAttentionConfig
from headwise.config.base import Problems
from headwise.errors import UserError
from headwise.interop.hf.architecture import (
    ACTIVATIONS,
    Architecture,
    HfActivation,
    HfTextConfig,
    TokenId,
    fuse,
    name_activation,
)
from headwise.models.perceiver import PerceiverConfig

OUTPUT_HEADS, OUTPUT_HEAD_WIDTH = 8, 32  # of the output queries of `PerceiverForMaskedLM`, whatever the config says


class HfPerceiverConfig(HfTextConfig):
    """`transformers` does not use `layer_norm_eps`; the sizes of images, audio and video are those of other models."""

    ignored_keys = (
        "layer_norm_eps", "image_size", "train_size", "num_frames", "audio_samples_per_frame", "samples_per_patch",
        "output_shape", "output_num_channels", "_label_trainable_num_channels",
    )  # fmt: skip

    model_type: Literal["perceiver"] = "perceiver"
    vocab_size: int = Field(262, gt=0)
    num_latents: int = Field(256, gt=0)
    d_latents: int = Field(1280, gt=0)
    d_model: int = Field(768, gt=0)
    num_blocks: int = Field(1, gt=0)
    num_self_attends_per_block: int = Field(26, gt=0)
    num_self_attention_heads: int = Field(8, gt=0)
    num_cross_attention_heads: int = Field(8, gt=0)
    qk_channels: int | None = Field(None, gt=0)
    v_channels: int | None = Field(None, gt=0)
    cross_attention_shape_for_attention: Literal["q", "kv"] = "kv"
    self_attention_widening_factor: Literal[1] = 1
    cross_attention_widening_factor: Literal[1] = 1
    use_query_residual: Literal[True] = True
    hidden_act: HfActivation = "gelu"
    attention_probs_dropout_prob: float = 0.1
    max_position_embeddings: int = Field(2048, gt=0)
    tie_word_embeddings: bool = True  # the head has no table of its own
    pad_token_id: TokenId = None

    @model_validator(mode="after")
    def _check_sizes(self) -> Self:
        if (self.v_channels or self.qk_channels or self.d_latents) != self.d_latents:
            raise Problems([(("v_channels",), f"must be d_latents, {self.d_latents}, as a residual is added")])
        for side, widths in (("self", self.self_widths), ("cross", self.cross_widths)):
            key = f"num_{side}_attention_heads"
            heads = getattr(self, key)
            if any(width % heads for width in widths):
                raise Problems([((key,), f"{heads} must divide the channels of its attention, {widths}")])
        return self

    @property
    def self_widths(self) -> tuple[int, int]:
        """Channels of queries and keys, and of values, where latents attend to each other."""
        return self.qk_channels or self.d_latents, self.d_latents

    @property
    def cross_widths(self) -> tuple[int, int]:
        """The same where they attend to the inputs."""
        default = self.d_model if self.cross_attention_shape_for_attention == "kv" else self.d_latents
        return self.qk_channels or default, self.v_channels or self.qk_channels or default

    @property
    def context(self) -> int:
        return self.max_position_embeddings

    def to_settings(self, task: str, names: Collection[str]) -> dict[str, Any]:
        heads, cross_heads = self.num_self_attention_heads, self.num_cross_attention_heads
        layer_sizes = {"heads": heads, "head_width": self.self_widths[0] // heads}
        qk_width, v_width = (width // cross_heads for width in self.cross_widths)
        cross = describe_attention(cross_heads, qk_width, v_width, layer_sizes, self.d_latents)
        if task == "classify":
            output: Any = describe_attention(1, self.d_latents, self.d_latents, layer_sizes, self.d_latents)
        else:
            sizes = (OUTPUT_HEADS, OUTPUT_HEAD_WIDTH, self.d_model // OUTPUT_HEADS)
            output = describe_attention(*sizes, layer_sizes, self.d_model)
        return {
            **layer_sizes,
            "width": self.d_latents,
            "embedding_width": self.d_model,
            "latents": self.num_latents,
            "depth": self.num_self_attends_per_block,
            "repeats": self.num_blocks,
            "cross_attends": 0 if self.num_blocks == 1 else 1,
            "activation": ACTIVATIONS[self.hidden_act],
            "cross_attention": cross,
            "output_attention": "" if output == cross else output,
            "learned_query": task == "classify",
            "positions": {"kind": "learned", "max_length": self.max_position_embeddings},
            "dropout": 0.0,
            "attention_dropout": self.attention_probs_dropout_prob,
        }

    @classmethod
    def from_model_config(cls, config: Any, vocab: int) -> Self:
        heads, width, cross = config.heads, config.width, config.cross_attention
        head_width = config.head_width or width // heads
        data = {
            "vocab_size": vocab,
            "num_latents": config.latents,
            "d_latents": width,
            "d_model": config.embedding_width,
            "num_blocks": config.repeats,
            "num_self_attends_per_block": config.depth,
            "num_self_attention_heads": heads,
            "num_cross_attention_heads": getattr(cross, "heads", 0) or heads,
            "hidden_act": name_activation(config),
            "attention_probs_dropout_prob": config.attention_dropout,
            "max_position_embeddings": getattr(config.positions, "max_length", 2048),
        }
        # Where the two attentions have different channels, both are derived.
        derived = [(None, v_channels, shape) for v_channels in (None, width) for shape in ("kv", "q")]
        cross_widths = find_cross_widths(cross, heads, head_width, width)
        for qk_channels, v_channels, shape in [(heads * head_width, width, "kv"), *derived]:
            channels = {"qk_channels": qk_channels, "v_channels": v_channels}
            try:
                hf_config = cls.model_validate(data | channels | {"cross_attention_shape_for_attention": shape})
            except ValidationError:  # channels that heads do not divide
                continue
            if (hf_config.self_widths, hf_config.cross_widths) == ((heads * head_width, width), cross_widths):
                return hf_config
        raise UserError(
            "cross_attention: config.json of perceiver cannot express its sizes, so the model cannot be exported; "
            "train with those of the latents"
        )


def find_cross_widths(attention: Any, heads: int, head_width: int, width: int) -> tuple[int, int]:
    """Channels of queries and keys, and of values, of a cross-attention in layers of `width`."""
    if not isinstance(attention, PerceiverAttentionConfig):
        return heads * head_width, width
    heads = attention.heads or heads
    return heads * (attention.head_width or head_width), heads * attention.value_width or width


def describe_attention(heads: int, head_width: int, value_width: int, layer_sizes: dict[str, int], width: int) -> Any:
    """Attention to a memory with queries of `width`; sizes that follow from the layer are 0."""
    return PerceiverAttentionConfig(
        attend_to="memory",
        heads=0 if heads == layer_sizes["heads"] else heads,
        head_width=0 if head_width == layer_sizes["head_width"] else head_width,
        value_width=0 if value_width * heads == width else value_width,
    )


def map_layer(layer: str, hf_layer: str, memory: bool) -> dict[str, Any]:
    """Tensor names of a layer; with cross-attention, the memory has a norm."""
    attention = f"{hf_layer}.attention.self"
    name_map: dict[str, Any] = {
        f"{layer}.norms.0": f"{attention}.layernorm1",
        f"{layer}.parts.0.out": f"{hf_layer}.attention.output.dense",
        f"{layer}.norms.1": f"{hf_layer}.layernorm",
        f"{layer}.parts.1.inner": f"{hf_layer}.mlp.dense1",
        f"{layer}.parts.1.outer": f"{hf_layer}.mlp.dense2",
    }
    if not memory:
        return name_map | {
            f"{layer}.parts.0.qkv.project": fuse(*(f"{attention}.{part}" for part in ("query", "key", "value")))
        }
    return name_map | {
        f"{layer}.parts.0.qkv.norm": f"{attention}.layernorm2",
        f"{layer}.parts.0.qkv.query": f"{attention}.query",
        f"{layer}.parts.0.qkv.project": fuse(f"{attention}.key", f"{attention}.value"),
    }


INPUTS, DECODER = "perceiver.input_preprocessor", "perceiver.decoder"
PERCEIVER = Architecture(
    hf_config=HfPerceiverConfig,
    config=PerceiverConfig,
    classes={"PerceiverForMaskedLM": "masked", "PerceiverForSequenceClassification": "classify"},
    name_map={
        "encoder.embed.table": f"{INPUTS}.embeddings",
        "encoder.embed.positions": f"{INPUTS}.position_embeddings",
        "encoder.latents": "perceiver.embeddings.latents",
        **map_layer("encoder.stack.layers.0", "perceiver.encoder.cross_attention", memory=True),
        **map_layer("encoder.stack.layers.{n}", "perceiver.encoder.self_attends.{n-1}", memory=False),
    },
    head_maps={
        "masked": {
            "encoder.outputs.positions.table": f"{DECODER}.output_position_encodings.position_embeddings",
            **map_layer("encoder.outputs.layer", f"{DECODER}.decoding_cross_attention", memory=True),
            "head.table": f"{INPUTS}.embeddings",
            "head.bias": "embedding_decoder.bias",
        },
        "classify": {
            "encoder.outputs.query": f"{DECODER}.decoder.output_position_encodings.position_embeddings",
            **map_layer("encoder.outputs.layer", f"{DECODER}.decoder.decoding_cross_attention", memory=True),
            "head.table": f"{DECODER}.decoder.final_layer",
            "head.bias": f"{DECODER}.decoder.final_layer.bias",
        },
    },
    special_names={"bos": "cls", "eos": "sep"},
)
