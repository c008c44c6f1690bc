"""LeViT of timm, with linear layers or with convolutions of 1 x 1 (`levit_conv_*`), which compute the same."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator
from torch import Tensor

from headwise.interop.hf.architecture import COMPUTED, Architecture, NameMap, WeightConverter
from headwise.interop.hf.images import to_pair
from headwise.interop.timm.config import NO_HEAD, Count, TimmConfig, Variants, Width, check_patches
from headwise.models.levit import LevitConfig

TimmActivation = Literal["hard_swish", "silu", "swish"]
ACTIVATIONS = {"hard_swish": "hard_swish", "silu": "swish", "swish": "swish"}
TIMM_NAMES = {"hard_swish": "hard_swish", "swish": "silu"}
STEM_LAYERS = {"s16": 4, "s8": 3}  # convolutions of stride 2
SIZES: dict[str, dict[str, Any]] = {
    "128s": {"embed_dim": (128, 256, 384), "key_dim": 16, "num_heads": (4, 6, 8), "depth": (2, 3, 4)},
    "128": {"embed_dim": (128, 256, 384), "key_dim": 16, "num_heads": (4, 8, 12), "depth": (4, 4, 4)},
    "192": {"embed_dim": (192, 288, 384), "key_dim": 32, "num_heads": (3, 5, 6), "depth": (4, 4, 4)},
    "256": {"embed_dim": (256, 384, 512), "key_dim": 32, "num_heads": (4, 6, 8), "depth": (4, 4, 4)},
    "384": {"embed_dim": (384, 512, 768), "key_dim": 32, "num_heads": (6, 9, 12), "depth": (4, 4, 4)},
}


class TimmLevitConfig(TimmConfig):
    """`attn_ratio` must be equal in all stages."""

    ignored_keys = (*TimmConfig.ignored_keys, "down_op")  # any text subsamples
    class_name = "Levit"
    first_conv = "stem.conv1.linear"
    locked = frozenset({"use_conv"})
    variants: ClassVar[Variants] = {f"levit_{name}": size for name, size in SIZES.items()} | {
        f"levit_conv_{name}": {**size, "use_conv": True} for name, size in SIZES.items()
    }

    model_type: Literal["timm/levit"] = "timm/levit"
    embed_dim: tuple[Width, ...] = Field((192,), min_length=1, max_length=20)
    key_dim: Width = 64
    depth: tuple[Count, ...] = (12,)
    num_heads: tuple[Count, ...] = (3,)
    attn_ratio: int = Field(2, gt=0)
    mlp_ratio: Literal[2] = 2  # as after each subsampling
    stem_type: Literal["s16", "s8"] = "s16"
    act_layer: TimmActivation = "hard_swish"
    attn_act_layer: TimmActivation | None = None  # null: act_layer
    use_conv: bool = False
    distilled: bool = True
    global_pool: Literal["avg"] = "avg"

    @field_validator("attn_ratio", "mlp_ratio", mode="before")
    @classmethod
    def _take_one_ratio(cls, value: Any) -> Any:
        if isinstance(value, list | tuple) and value:
            if len(set(value)) > 1:
                raise ValueError("must be equal in all stages")
            value = value[0]
        return int(value) if isinstance(value, float) and value.is_integer() else value

    @field_validator("num_heads", mode="before")
    @classmethod
    def _repeat_heads(cls, value: Any, info: Any) -> Any:
        return (value,) * len(info.data.get("embed_dim", ())) if isinstance(value, int) else value

    @model_validator(mode="after")
    def _check_stages(self) -> Self:
        if not len(self.embed_dim) == len(self.depth) == len(self.num_heads):
            raise ValueError("embed_dim, depth and num_heads must have one number for each stage")
        return self

    @property
    def classifier(self) -> str | list[str]:
        return ["head.linear", "head_dist.linear"] if self.distilled else "head.linear"

    @property
    def num_features(self) -> int:
        return self.embed_dim[-1]

    def to_settings(self, task: str, names: Collection[str]) -> dict[str, Any]:
        return {
            "image": to_pair(self.img_size),
            "channels": self.in_chans,
            "widths": self.embed_dim,
            "depths": self.depth,
            "heads": self.num_heads,
            "head_width": self.key_dim,
            "activation": ACTIVATIONS[self.act_layer],
            "mixer": {
                "kind": "levit",
                "value_expand": self.attn_ratio,
                "activation": ACTIVATIONS[self.attn_act_layer or self.act_layer],
            },
            "feedforward": {"kind": "levit_mlp", "activation": ACTIVATIONS[self.act_layer]},
            "stem_layers": STEM_LAYERS[self.stem_type],
            "class_heads": 2 if self.distilled else 1,
        }

    @classmethod
    def list_arguments(cls, config: Any) -> dict[str, Any]:
        attention = getattr(config.mixer, "activation", config.activation)
        return {
            "embed_dim": config.widths,
            "key_dim": config.head_width,
            "depth": config.depths,
            "num_heads": config.heads,
            "attn_ratio": getattr(config.mixer, "value_expand", 2),
            "stem_type": {layers: stem for stem, layers in STEM_LAYERS.items()}.get(config.stem_layers, "s16"),
            "distilled": config.class_heads > 1,
            "use_conv": False,
            "act_layer": TIMM_NAMES[config.activation],
            "attn_act_layer": None if attention == config.activation else TIMM_NAMES[attention],
        }

    def check_image_size(self, where: str) -> None:
        check_patches(to_pair(self.img_size), 2 ** STEM_LAYERS[self.stem_type], where)

    def build_name_map(self) -> NameMap:
        """A stage of timm begins with the subsampling that ends the stage before it here."""
        names: dict[str, Any] = {}
        for stage, depth in enumerate(self.depth):
            layers = [f"encoder.stack.layers.{stage}.layers.{number}" for number in range(2 * depth + 2)]
            for number in range(depth):
                block = f"stages.{stage}.blocks.{number}"
                names |= map_attention(layers[2 * number], f"{block}.attn")
                names |= map_mlp(layers[2 * number + 1], f"{block}.mlp")
            downsample = f"stages.{stage + 1}.downsample"
            names |= map_subsampling(layers[-2], f"{downsample}.attn_downsample")
            names |= map_mlp(layers[-1], f"{downsample}.mlp")
        return names


def map_linear(name: str, timm_name: str) -> dict[str, Any]:
    """A linear layer with its batch norm."""
    return {
        f"{name}.linear": WeightConverter((f"{timm_name}.linear",), flatten_kernels),
        f"{name}.norm": f"{timm_name}.bn",
    }


def flatten_kernels(parts: Sequence[Tensor]) -> Tensor:
    """Kernels of 1 x 1 -> a matrix: (O, I, 1, 1) -> (O, I)."""
    return parts[0].flatten(1) if parts[0].dim() > 1 else parts[0]


def map_attention(layer: str, attention: str) -> dict[str, Any]:
    return {
        **map_linear(f"{layer}.parts.0.qkv.project", f"{attention}.qkv"),
        f"{layer}.parts.0.score_mods.0.scores": f"{attention}.attention_biases",
        **map_linear(f"{layer}.parts.0.out.1", f"{attention}.proj.ln"),
    }


def map_subsampling(layer: str, attention: str) -> dict[str, Any]:
    return {
        **map_linear(f"{layer}.attention.qkv.query", f"{attention}.q.ln"),
        **map_linear(f"{layer}.attention.qkv.project", f"{attention}.kv"),
        f"{layer}.attention.score_mods.0.scores": f"{attention}.attention_biases",
        **map_linear(f"{layer}.attention.out.1", f"{attention}.proj.ln"),
    }


def map_mlp(layer: str, mlp: str) -> dict[str, Any]:
    return {**map_linear(f"{layer}.parts.0.inner", f"{mlp}.ln1"), **map_linear(f"{layer}.parts.0.outer", f"{mlp}.ln2")}


def list_stem_names() -> Iterator[tuple[str, str]]:
    for number in range(max(STEM_LAYERS.values())):
        yield f"encoder.stem.patches.layers.{number}.conv", f"stem.conv{number + 1}.linear"
        yield f"encoder.stem.patches.layers.{number}.norm", f"stem.conv{number + 1}.bn"


LEVIT = Architecture(
    hf_config=TimmLevitConfig,
    config=LevitConfig,
    classes={"Levit": "classify-images", NO_HEAD.format("Levit"): "encode-images"},
    name_map={
        **dict(list_stem_names()),
        **map_linear("heads.0.head", "head"),
        **map_linear("heads.1.head", "head_dist"),
    },
    ignored={r".*\.attention_bias_idxs": COMPUTED},
)
