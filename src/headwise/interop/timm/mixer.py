"""MLP-Mixer of timm."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, ClassVar, Literal

from pydantic import field_validator

from headwise.interop.hf.architecture import Architecture
from headwise.interop.hf.images import PatchSize, flatten_kernel, to_pair
from headwise.interop.timm.config import NO_HEAD, Count, Ratio, TimmConfig, Variants, Width, check_patches, find_ratio
from headwise.models.mixer import MixerConfig


class TimmMixerConfig(TimmConfig):
    ignored_keys = (*TimmConfig.ignored_keys, "nlhb")  # initial bias of the head
    class_name = "MlpMixer"
    first_conv = "stem.proj"
    locked = frozenset({"patch_size", "num_blocks", "embed_dim"})
    variants: ClassVar[Variants] = {
        "mixer_s32_224": {"patch_size": 32, "num_blocks": 8, "embed_dim": 512},
        "mixer_s16_224": {"patch_size": 16, "num_blocks": 8, "embed_dim": 512},
        "mixer_b32_224": {"patch_size": 32, "num_blocks": 12, "embed_dim": 768},
        "mixer_b16_224": {"patch_size": 16, "num_blocks": 12, "embed_dim": 768},
        "mixer_l32_224": {"patch_size": 32, "num_blocks": 24, "embed_dim": 1024},
        "mixer_l16_224": {"patch_size": 16, "num_blocks": 24, "embed_dim": 1024},
    }

    model_type: Literal["timm/mixer"] = "timm/mixer"
    patch_size: PatchSize = 16
    num_blocks: Count = 8
    embed_dim: Width = 512
    mlp_ratio: tuple[Ratio, Ratio] = (0.5, 4.0)  # of token mixing and of the channels' network
    stem_norm: Literal[False] = False
    global_pool: Literal["avg"] = "avg"

    @field_validator("mlp_ratio", mode="before")
    @classmethod
    def _repeat_ratio(cls, value: Any) -> Any:
        return (value, value) if isinstance(value, int | float) else value

    @property
    def num_features(self) -> int:
        return self.embed_dim

    def to_settings(self, task: str, names: Collection[str]) -> dict[str, Any]:
        token_hidden, hidden = (int(ratio * self.embed_dim) for ratio in self.mlp_ratio)
        return {
            "image": to_pair(self.img_size),
            "channels": self.in_chans,
            "patch": self.patch_size,
            "width": self.embed_dim,
            "depth": self.num_blocks,
            "hidden": hidden,
            "mixer": {"kind": "tokens", "hidden": 0 if token_hidden == self.embed_dim // 2 else token_hidden},
        }

    @classmethod
    def list_arguments(cls, config: Any) -> dict[str, Any]:
        token_hidden = getattr(config.mixer, "hidden", 0) or config.width // 2
        hidden = config.hidden or 4 * config.width
        return {
            "patch_size": config.patch,
            "num_blocks": config.depth,
            "embed_dim": config.width,
            "mlp_ratio": (find_ratio(token_hidden, config.width), find_ratio(hidden, config.width)),
        }

    def check_image_size(self, where: str) -> None:
        check_patches(to_pair(self.img_size), self.patch_size, where)


LAYER, BLOCK = "encoder.stack.layers.{i}", "blocks.{i}"
MIXER = Architecture(
    hf_config=TimmMixerConfig,
    config=MixerConfig,
    classes={"MlpMixer": "classify-images", NO_HEAD.format("MlpMixer"): "encode-images"},
    name_map={
        "encoder.stem.patches.project": flatten_kernel("stem.proj"),
        f"{LAYER}.norms.0": f"{BLOCK}.norm1",
        f"{LAYER}.parts.0.inner": f"{BLOCK}.mlp_tokens.fc1",
        f"{LAYER}.parts.0.outer": f"{BLOCK}.mlp_tokens.fc2",
        f"{LAYER}.norms.1": f"{BLOCK}.norm2",
        f"{LAYER}.parts.1.inner": f"{BLOCK}.mlp_channels.fc1",
        f"{LAYER}.parts.1.outer": f"{BLOCK}.mlp_channels.fc2",
        "encoder.stack.final": "norm",
        "heads.0.head": "head",
    },
)
