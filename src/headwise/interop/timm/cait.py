"""CaiT of timm."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from headwise.errors import UserError
from headwise.interop.hf.architecture import Architecture, NameMap, fuse, keep_fused
from headwise.interop.hf.images import PatchSize, concatenate_vectors, flatten_kernel, to_pair
from headwise.interop.timm.config import NO_HEAD, Count, Ratio, TimmConfig, Variants, Width, check_patches, find_ratio
from headwise.models.cait import CaitConfig

XXS = {"embed_dim": 192, "num_heads": 4, "init_values": 1e-5}
XS = {"embed_dim": 288, "num_heads": 6, "init_values": 1e-5}
S = {"embed_dim": 384, "num_heads": 8}
M = {"embed_dim": 768, "num_heads": 16, "init_values": 1e-6}


class TimmCaitConfig(TimmConfig):
    """The feed-forward networks of both kinds of layers must be equally wide."""

    class_name = "Cait"
    first_conv = "patch_embed.proj"
    variants: ClassVar[Variants] = {
        "cait_xxs24_224": {**XXS, "depth": 24},
        "cait_xxs24_384": {**XXS, "depth": 24},
        "cait_xxs36_224": {**XXS, "depth": 36},
        "cait_xxs36_384": {**XXS, "depth": 36},
        "cait_xs24_384": {**XS, "depth": 24},
        "cait_s24_224": {**S, "depth": 24, "init_values": 1e-5},
        "cait_s24_384": {**S, "depth": 24, "init_values": 1e-5},
        "cait_s36_384": {**S, "depth": 36, "init_values": 1e-6},
        "cait_m36_384": {**M, "depth": 36},
        "cait_m48_448": {**M, "depth": 48},
    }

    model_type: Literal["timm/cait"] = "timm/cait"
    patch_size: PatchSize = 16
    embed_dim: Width = 768
    depth: Count = 12
    num_heads: Count = 12
    mlp_ratio: Ratio = 4.0
    qkv_bias: bool = True
    init_values: float = Field(1e-4, gt=0)  # of LayerScale
    depth_token_only: Count = 2
    mlp_ratio_token_only: Ratio = 4.0
    global_pool: Literal["token"] = "token"

    @model_validator(mode="after")
    def _check_equal(self) -> Self:
        if len({int(self.embed_dim * ratio) for ratio in (self.mlp_ratio, self.mlp_ratio_token_only)}) > 1:
            raise ValueError("mlp_ratio_token_only must equal mlp_ratio")
        if self.embed_dim % self.num_heads:
            raise ValueError(f"embed_dim {self.embed_dim} must be a multiple of num_heads {self.num_heads}")
        return self

    @property
    def num_features(self) -> int:
        return self.embed_dim

    def to_settings(self, task: str, names: Collection[str]) -> dict[str, Any]:
        return {
            "image": to_pair(self.img_size),
            "channels": self.in_chans,
            "patch": self.patch_size,
            "width": self.embed_dim,
            "depth": self.depth,
            "heads": self.num_heads,
            "hidden": int(self.embed_dim * self.mlp_ratio),
            "mixer": {"kind": "attention", "qkv_bias": self.qkv_bias, "score_mods": [{"kind": "talking"}]},
            "cross_attention": {"kind": "attention", "attend_to": "memory", "qkv_bias": self.qkv_bias},
            "layer_scale": self.init_values,
            "class_depth": self.depth_token_only,
        }

    @classmethod
    def list_arguments(cls, config: Any) -> dict[str, Any]:
        if config.shared:
            raise UserError("shared: timm has no layers that share weights; train without")
        ratio = find_ratio(config.hidden or 4 * config.width, config.width)
        return {
            "patch_size": config.patch,
            "embed_dim": config.width,
            "depth": config.depth,
            "num_heads": config.heads,
            "mlp_ratio": ratio,
            "mlp_ratio_token_only": ratio,
            "qkv_bias": getattr(config.mixer, "qkv_bias", True),
            "init_values": config.layer_scale or cls.model_fields["init_values"].default,
            "depth_token_only": config.class_depth,
        }

    def check_image_size(self, where: str) -> None:
        check_patches(to_pair(self.img_size), self.patch_size, where)

    def build_name_map(self) -> NameMap:
        """Class-attention layers follow the layer that prepends the class token."""
        names: dict[str, Any] = {f"encoder.stack.layers.{self.depth}.class_tokens": concatenate_vectors("cls_token")}
        for number in range(self.depth_token_only):
            layer, block = f"encoder.stack.layers.{self.depth + 1 + number}", f"blocks_token_only.{number}"
            names |= map_block(layer, block) | {
                f"{layer}.parts.0.qkv.query": f"{block}.attn.q",
                f"{layer}.parts.0.qkv.project": fuse(f"{block}.attn.k", f"{block}.attn.v"),
            }
        return names


def map_block(layer: str, block: str) -> dict[str, Any]:
    """Tensor names that layers of all kinds share."""
    return {
        f"{layer}.norms.0": f"{block}.norm1",
        f"{layer}.parts.0.qkv.project": keep_fused(f"{block}.attn.qkv"),
        f"{layer}.parts.0.out": f"{block}.attn.proj",
        f"{layer}.adds.0.gain": f"{block}.gamma_1",
        f"{layer}.norms.1": f"{block}.norm2",
        f"{layer}.parts.1.inner": f"{block}.mlp.fc1",
        f"{layer}.parts.1.outer": f"{block}.mlp.fc2",
        f"{layer}.adds.1.gain": f"{block}.gamma_2",
    }


LAYER, BLOCK = "encoder.stack.layers.{i}", "blocks.{i}"
CAIT = Architecture(
    hf_config=TimmCaitConfig,
    config=CaitConfig,
    classes={"Cait": "classify-images", NO_HEAD.format("Cait"): "encode-images"},
    name_map={
        "encoder.stem.patches.project": flatten_kernel("patch_embed.proj"),
        "encoder.stem.positions.table": concatenate_vectors("pos_embed"),
        **map_block(LAYER, BLOCK),
        f"{LAYER}.parts.0.score_mods.0.before": f"{BLOCK}.attn.proj_l",
        f"{LAYER}.parts.0.score_mods.0.after": f"{BLOCK}.attn.proj_w",
        "encoder.stack.final": "norm",
        "heads.0.head": "head",
    },
)
