"""VOLO of timm."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from headwise.errors import UserError
from headwise.interop.hf.architecture import Architecture, NameMap, WeightConverter, keep_fused
from headwise.interop.hf.images import concatenate_vectors, flatten_kernel, to_pair
from headwise.interop.timm.config import NO_HEAD, Count, Ratio, TimmConfig, Variants, Width, check_patches
from headwise.models.volo import VoloConfig

STAGES = 4  # outlookers, then three of self-attention
Widths = tuple[Width, Width, Width, Width]
Counts = tuple[Count, Count, Count, Count]
D1 = {"layers": (4, 4, 8, 2), "embed_dims": (192, 384, 384, 384), "num_heads": (6, 12, 12, 12)}
D2 = {"layers": (6, 4, 10, 4), "embed_dims": (256, 512, 512, 512), "num_heads": (8, 16, 16, 16)}
D3 = {"layers": (8, 8, 16, 4), "embed_dims": (256, 512, 512, 512), "num_heads": (8, 16, 16, 16)}
D4 = {"layers": (8, 8, 16, 4), "embed_dims": (384, 768, 768, 768), "num_heads": (12, 16, 16, 16)}
D5 = {
    "layers": (12, 12, 20, 4), "embed_dims": (384, 768, 768, 768), "num_heads": (12, 16, 16, 16), "mlp_ratio": 4.0,
    "stem_hidden_dim": 128,
}  # fmt: skip


class TimmVoloConfig(TimmConfig):
    """All stages of self-attention must be equally wide."""

    ignored_keys = (*TimmConfig.ignored_keys, "use_mix_token")  # of training
    class_name = "VOLO"
    first_conv = "patch_embed.conv.0"
    locked = frozenset({"layers", "embed_dims", "num_heads", "mlp_ratio", "stem_hidden_dim"})
    variants: ClassVar[Variants] = {
        "volo_d1_224": D1, "volo_d1_384": D1, "volo_d2_224": D2, "volo_d2_384": D2, "volo_d3_224": D3,
        "volo_d3_448": D3, "volo_d4_224": D4, "volo_d4_448": D4, "volo_d5_224": D5, "volo_d5_448": D5,
        "volo_d5_512": D5,
    }  # fmt: skip

    model_type: Literal["timm/volo"] = "timm/volo"
    layers: Counts = (4, 4, 8, 2)
    patch_size: Literal[4, 8, 16] = 8
    stem_hidden_dim: Width = 64
    embed_dims: Widths = (192, 384, 384, 384)
    num_heads: Counts = (6, 12, 12, 12)
    downsamples: tuple[Literal[True], Literal[False], Literal[False], Literal[False]] = (True, False, False, False)
    outlook_attention: tuple[Literal[True], Literal[False], Literal[False], Literal[False]] = (True, *(False,) * 3)
    mlp_ratio: Ratio = 3.0
    qkv_bias: bool = False
    post_layers: tuple[Literal["ca"], ...] = Field(("ca", "ca"), min_length=1, max_length=100)
    use_aux_head: Literal[True] = True
    pooling_scale: Literal[2] = 2
    global_pool: Literal["token"] = "token"

    @field_validator("mlp_ratio", mode="before")
    @classmethod
    def _take_one_ratio(cls, value: Any) -> Any:
        if isinstance(value, list | tuple) and len(value) == STAGES:
            if len(set(value)) > 1:
                raise ValueError("must be equal in all stages")
            return value[0]
        return value

    @model_validator(mode="after")
    def _check_ratio(self) -> Self:
        if any(int(width * self.mlp_ratio) != round(width * self.mlp_ratio) for width in self.embed_dims[:2]):
            raise ValueError(
                f"mlp_ratio: {self.mlp_ratio} times the widths {self.embed_dims[:2]} must be whole numbers"
            )
        return self

    @property
    def classifier(self) -> list[str]:
        return ["head", "aux_head"]

    @property
    def num_features(self) -> int:
        return self.embed_dims[-1]

    def to_settings(self, task: str, names: Collection[str]) -> dict[str, Any]:
        outlook_width, width = self.embed_dims[:2]
        return {
            "image": to_pair(self.img_size),
            "channels": self.in_chans,
            "patch": self.patch_size,
            "stem_hidden": self.stem_hidden_dim,
            "outlook": {"kind": "outlook", "heads": self.num_heads[0], "value_bias": self.qkv_bias},
            "outlook_depth": self.layers[0],
            "outlook_width": 0 if outlook_width == width // 2 else outlook_width,
            "width": width,
            "heads": self.num_heads[1],
            "depth": sum(self.layers[1:]),
            "mixer": {"kind": "attention", "qkv_bias": self.qkv_bias},
            "cross_attention": {"kind": "attention", "attend_to": "memory", "qkv_bias": self.qkv_bias},
            "feedforward": {"kind": "mlp", "expand": self.mlp_ratio},
            "class_depth": len(self.post_layers),
        }

    @classmethod
    def list_arguments(cls, config: Any) -> dict[str, Any]:
        """The division of `depth` into three stages changes names alone: it is that of the variant with this depth."""
        if config.shared:
            raise UserError("shared: timm has no layers that share weights; train without")
        depths = (config.outlook_depth, config.depth)
        layers = [variant["layers"] for variant in cls.variants.values()]
        heads = getattr(config.outlook, "heads", 0) or config.heads
        return {
            "layers": next((each for each in layers if (each[0], sum(each[1:])) == depths), None),
            "patch_size": config.patch,
            "stem_hidden_dim": config.stem_hidden,
            "embed_dims": (config.outlook_width or max(1, config.width // 2), *(config.width,) * 3),
            "num_heads": (heads, *(config.heads,) * 3),
            "mlp_ratio": getattr(config.feedforward, "expand", 0) or 4.0,
            "qkv_bias": getattr(config.mixer, "qkv_bias", False),
            "post_layers": ("ca",) * config.class_depth,
        }

    def check_image_size(self, where: str) -> None:
        check_patches(to_pair(self.img_size), 2 * self.patch_size, where)

    def build_name_map(self) -> NameMap:
        """The layers of all stages are in one stack; one that merges patches, and one that prepends the class token,
        are among them."""
        downsample, class_tokens = self.layers[0], sum(self.layers) + 1
        stem = f"encoder.stack.layers.{downsample}.stem"
        names: dict[str, Any] = {
            f"{stem}.patches.project": flatten_kernel("network.1.proj"),
            f"{stem}.positions.table": self._map_positions(),
            f"encoder.stack.layers.{class_tokens}.class_tokens": concatenate_vectors("cls_token"),
        }
        for number, block in self._list_blocks():
            names |= map_block(f"encoder.stack.layers.{number}", block)
        return names

    def _list_blocks(self) -> Iterator[tuple[int, str]]:
        """Each layer of the stack with its name in timm, where network.1 merges patches."""
        number = 0
        for stage, depth in zip((0, 2, 3, 4), self.layers, strict=True):
            for index in range(depth):
                yield number, f"network.{stage}.{index}"
                number += 1
            number += stage == 0
        for index in range(len(self.post_layers)):
            yield number + 1 + index, f"post_network.{index}"

    def _map_positions(self) -> WeightConverter:
        """Position embeddings, which timm stores on the grid: (1, h, w, D)."""
        grid = tuple(side // (2 * self.patch_size) for side in to_pair(self.img_size))
        return WeightConverter(
            ("pos_embed",),
            lambda parts: parts[0].flatten(0, 2),
            lambda tensor, sizes: (tensor.unflatten(0, (1, *grid)),),
        )


def map_block(layer: str, block: str) -> dict[str, Any]:
    """Tensor names of outlookers, of self-attention and of class attention, each with its own projections."""
    return {
        f"{layer}.norms.0": f"{block}.norm1",
        f"{layer}.parts.0.value": f"{block}.attn.v",
        f"{layer}.parts.0.weigh": f"{block}.attn.attn",
        f"{layer}.parts.0.qkv.query": f"{block}.attn.q",
        f"{layer}.parts.0.qkv.project": keep_fused(
            f"{block}.attn.{'kv' if block.startswith('post_network') else 'qkv'}"
        ),
        f"{layer}.parts.0.out": f"{block}.attn.proj",
        f"{layer}.norms.1": f"{block}.norm2",
        f"{layer}.parts.1.inner": f"{block}.mlp.fc1",
        f"{layer}.parts.1.outer": f"{block}.mlp.fc2",
    }


STEM = "encoder.stem.patches"
VOLO = Architecture(
    hf_config=TimmVoloConfig,
    config=VoloConfig,
    classes={"VOLO": "classify-images", NO_HEAD.format("VOLO"): "encode-images"},
    name_map={
        **{f"{STEM}.convolve.{number}.conv": f"patch_embed.conv.{3 * number}" for number in range(3)},
        **{f"{STEM}.convolve.{number}.norm": f"patch_embed.conv.{3 * number + 1}" for number in range(3)},
        f"{STEM}.patches.project": flatten_kernel("patch_embed.proj"),
        "encoder.stack.final": "norm",
        "heads.0.head": "head",
        "heads.1.head": "aux_head",
    },
)
