"""ViT of `transformers`."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal, Self

from pydantic import Field

from headwise.interop.hf.architecture import (
    ACTIVATIONS,
    Architecture,
    HfActivation,
    WeightConverter,
    fuse,
    name_activation,
)
from headwise.interop.hf.bert import has_tensor
from headwise.interop.hf.images import (
    HfImageConfig,
    ImageSize,
    PatchSize,
    concatenate_vectors,
    flatten_kernel,
    to_pair,
)
from headwise.models.deit import DeiTConfig
from headwise.models.vit import ViTConfig


class HfVitBaseConfig(HfImageConfig):
    """The keys that ViT and its relatives share. `qkv_bias` cannot be false while other biases exist."""

    # A key of masked image modelling, and one that the shape of the pooler's tensor shows.
    ignored_keys = (*HfImageConfig.ignored_keys, "encoder_stride", "pooler_output_size")

    hidden_size: int = Field(768, gt=0)
    num_hidden_layers: int = Field(12, gt=0)
    num_attention_heads: int = Field(12, gt=0)
    intermediate_size: int = Field(3072, gt=0)
    hidden_act: HfActivation = "gelu"
    hidden_dropout_prob: float = 0.0
    attention_probs_dropout_prob: float = 0.0
    layer_norm_eps: float = 1e-12
    image_size: ImageSize = 224
    patch_size: PatchSize = 16
    qkv_bias: Literal[True] = True
    pooler_act: Literal["tanh"] = "tanh"

    def to_settings(self, task: str, names: Collection[str]) -> dict[str, Any]:
        return {
            "image": to_pair(self.image_size),
            "channels": self.num_channels,
            "patch": self.patch_size,
            "width": self.hidden_size,
            "depth": self.num_hidden_layers,
            "heads": self.num_attention_heads,
            "hidden": self.intermediate_size,
            "activation": ACTIVATIONS[self.hidden_act],
            "norm": {"kind": "layer", "eps": self.layer_norm_eps},
            "dropout": self.hidden_dropout_prob,
            "attention_dropout": self.attention_probs_dropout_prob,
            "drop_path": 0.0,
            "pool": "pooler" if has_tensor(names, "pooler.dense.weight") else "first",
        }

    @classmethod
    def from_model_config(cls, config: Any, vocab: int) -> Self:
        data = {
            "image_size": config.image,
            "num_channels": config.channels,
            "patch_size": config.patch,
            "hidden_size": config.width,
            "num_hidden_layers": config.depth,
            "num_attention_heads": config.heads,
            "intermediate_size": config.hidden or 4 * config.width,
            "hidden_act": name_activation(config),
            "hidden_dropout_prob": config.dropout,
            "attention_probs_dropout_prob": config.attention_dropout,
            "layer_norm_eps": config.norm.eps,
        }
        return cls.model_validate(data)


class HfViTConfig(HfVitBaseConfig):
    model_type: Literal["vit"] = "vit"

    def to_settings(self, task: str, names: Collection[str]) -> dict[str, Any]:
        return super().to_settings(task, names) | {"class_tokens": 1}


LAYER = "encoder.stack.layers.{i}"


def map_base_model(prefix: str, *class_tokens: str) -> dict[str, str | WeightConverter]:
    """Tensor names of a base model with these class tokens."""
    hf_layer = f"{prefix}.encoder.layer.{{i}}"
    return {
        "encoder.stem.patches.project": flatten_kernel(f"{prefix}.embeddings.patch_embeddings.projection"),
        "encoder.stem.class_tokens": concatenate_vectors(*(f"{prefix}.embeddings.{token}" for token in class_tokens)),
        "encoder.stem.positions.table": concatenate_vectors(f"{prefix}.embeddings.position_embeddings"),
        f"{LAYER}.norms.0": f"{hf_layer}.layernorm_before",
        f"{LAYER}.parts.0.qkv.project": fuse(
            *(f"{hf_layer}.attention.attention.{part}" for part in ("query", "key", "value"))
        ),
        f"{LAYER}.parts.0.out": f"{hf_layer}.attention.output.dense",
        f"{LAYER}.norms.1": f"{hf_layer}.layernorm_after",
        f"{LAYER}.parts.1.inner": f"{hf_layer}.intermediate.dense",
        f"{LAYER}.parts.1.outer": f"{hf_layer}.output.dense",
        "encoder.stack.final": f"{prefix}.layernorm",
    }


POOLER = "the head does not use it"
VIT = Architecture(
    hf_config=HfViTConfig,
    config=ViTConfig,
    relatives=(DeiTConfig,),
    classes={"ViTForImageClassification": "classify-images", "ViTModel": "encode-images"},
    name_map=map_base_model("vit", "cls_token"),
    head_maps={
        "classify-images": {"heads.0.head": "classifier"},
        "encode-images": {"pool.1.dense": "vit.pooler.dense"},
    },
    base_prefix="vit.",
    ignored={r"vit\.pooler\..*": POOLER},
)
