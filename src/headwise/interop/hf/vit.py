"""ViT of `transformers`."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal, Self

from pydantic import Field

from headwise.interop.hf.architecture import OURS, Architecture, Key, Plain, activation_of, fused
from headwise.interop.hf.bert import has
from headwise.interop.hf.images import Sides, TheirImages, kernel, pair, vectors
from headwise.models.deit import DeiTConfig
from headwise.models.vit import ViTConfig


class TheirColumns(TheirImages):
    """What ViT and its kin have. Biases of queries, keys and values alone cannot be left out here."""

    # Of the decoder of masked images; and what the shape of the pooler's tensor tells.
    unread = (*TheirImages.unread, "encoder_stride", "pooler_output_size")

    hidden_size: int = Field(768, gt=0)
    num_hidden_layers: int = Field(12, gt=0)
    num_attention_heads: int = Field(12, gt=0)
    intermediate_size: int = Field(3072, gt=0)
    hidden_act: Plain = "gelu"
    hidden_dropout_prob: float = 0.0
    attention_probs_dropout_prob: float = 0.0
    layer_norm_eps: float = 1e-12
    image_size: Sides = 224
    patch_size: int = Field(16, gt=0)
    qkv_bias: Literal[True] = True
    pooler_act: Literal["tanh"] = "tanh"

    def ours(self, task: str, names: Collection[str]) -> dict[str, Any]:
        return {
            "image": pair(self.image_size),
            "channels": self.num_channels,
            "patch": self.patch_size,
            "width": self.hidden_size,
            "depth": self.num_hidden_layers,
            "heads": self.num_attention_heads,
            "hidden": self.intermediate_size,
            "activation": OURS[self.hidden_act],
            "norm": {"kind": "layer", "eps": self.layer_norm_eps},
            "dropout": self.hidden_dropout_prob,
            "attention_dropout": self.attention_probs_dropout_prob,
            "drop_path": 0.0,
            "pool": "pooler" if has(names, "pooler.dense.weight") else "first",
        }

    @classmethod
    def of(cls, config: Any, vocab: int) -> Self:
        said = {
            "image_size": config.image,
            "num_channels": config.channels,
            "patch_size": config.patch,
            "hidden_size": config.width,
            "num_hidden_layers": config.depth,
            "num_attention_heads": config.heads,
            "intermediate_size": config.hidden or 4 * config.width,
            "hidden_act": activation_of(config),
            "hidden_dropout_prob": config.dropout,
            "attention_probs_dropout_prob": config.attention_dropout,
            "layer_norm_eps": config.norm.eps,
        }
        return cls.model_validate(said)


class TheirViT(TheirColumns):
    model_type: Literal["vit"] = "vit"

    def ours(self, task: str, names: Collection[str]) -> dict[str, Any]:
        return super().ours(task, names) | {"class_tokens": 1}


LAYER, INSIDE = "encoder.stack.layers.{i}", "{stem}.encoder.layer.{i}"


def columns(stem: str, *marks: str) -> dict[str, str | Key]:
    """The names of a base model with these marks."""
    inside = INSIDE.replace("{stem}", stem)
    return {
        "encoder.stem.patches.project": kernel(f"{stem}.embeddings.patch_embeddings.projection"),
        "encoder.stem.class_tokens": vectors(*(f"{stem}.embeddings.{mark}" for mark in marks)),
        "encoder.stem.positions.table": vectors(f"{stem}.embeddings.position_embeddings"),
        f"{LAYER}.norms.0": f"{inside}.layernorm_before",
        f"{LAYER}.parts.0.qkv.project": fused(
            *(f"{inside}.attention.attention.{p}" for p in ("query", "key", "value"))
        ),
        f"{LAYER}.parts.0.out": f"{inside}.attention.output.dense",
        f"{LAYER}.norms.1": f"{inside}.layernorm_after",
        f"{LAYER}.parts.1.inner": f"{inside}.intermediate.dense",
        f"{LAYER}.parts.1.outer": f"{inside}.output.dense",
        "encoder.stack.final": f"{stem}.layernorm",
    }


POOLER = "their head does not read it"
VIT = Architecture(
    theirs=TheirViT,
    config=ViTConfig,
    relatives=(DeiTConfig,),
    classes={"ViTForImageClassification": "classify-images", "ViTModel": "encode-images"},
    keys=columns("vit", "cls_token"),
    heads={"classify-images": {"heads.0.head": "classifier"}, "encode-images": {"pool.1.dense": "vit.pooler.dense"}},
    stem="vit.",
    ignored={r"vit\.pooler\..*": POOLER},
)
