"""ResNet of `transformers`, alone and as the backbone of a detector."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from headwise.interop.hf.architecture import Architecture, WeightConverter
from headwise.interop.hf.images import HfImageConfig, ImageSize, to_pair
from headwise.models.resnet import ResNetConfig


class HfResNetConfig(HfImageConfig):
    """Every stage must be twice as wide as the one before. `image_size` is a key of Headwise that keeps the size in an
    exported folder: `transformers` reads images of any size."""

    ignored_keys = (*HfImageConfig.ignored_keys, "stage_names", "out_features", "out_indices")  # of a backbone

    image_processor = "ConvNextImageProcessor"
    any_size = True
    model_type: Literal["resnet"] = "resnet"
    image_size: ImageSize = 224
    embedding_size: int = Field(64, gt=0)
    hidden_sizes: tuple[int, ...] = Field((256, 512, 1024, 2048), min_length=1)
    depths: tuple[int, ...] = Field((3, 4, 6, 3), min_length=1)
    layer_type: Literal["basic", "bottleneck"] = "bottleneck"
    hidden_act: Literal["relu"] = "relu"
    downsample_in_first_stage: Literal[False] = False
    downsample_in_bottleneck: Literal[False] = False

    @model_validator(mode="after")
    def _check_doubling(self) -> Self:
        widths = ResNetConfig(**self._settings()).widths
        if self.hidden_sizes != widths:
            raise ValueError(f"hidden_sizes must be {widths} here, as every stage doubles embedding_size")
        return self

    def _settings(self) -> dict[str, Any]:
        return {
            "channels": self.num_channels,
            "width": self.embedding_size,
            "depths": self.depths,
            "bottleneck": self.layer_type == "bottleneck",
        }

    def to_settings(self, task: str, names: Collection[str]) -> dict[str, Any]:
        return {"image": to_pair(self.image_size), **self._settings()}

    @classmethod
    def from_model_config(cls, config: Any, vocab: int) -> Self:
        return cls(
            image_size=config.image,
            num_channels=config.channels,
            embedding_size=config.width,
            hidden_sizes=config.widths,
            depths=config.depths,
            layer_type="bottleneck" if config.bottleneck else "basic",
        )


def map_resnet(prefix: str, hf_prefix: str) -> dict[str, str | WeightConverter]:
    """Tensor names of all but the head."""
    layer, hf_layer = (
        f"{prefix}.stack.layers.{{stage}}.layers.{{i}}",
        f"{hf_prefix}.encoder.stages.{{stage}}.layers.{{i}}",
    )
    return {
        **map_convolution(f"{prefix}.stem.patches.layers.0", f"{hf_prefix}.embedder.embedder"),
        **map_convolution(f"{layer}.shortcut", f"{hf_layer}.shortcut"),
        **map_convolution(f"{layer}.body.0", f"{hf_layer}.layer.0"),
        **map_convolution(f"{layer}.body.1", f"{hf_layer}.layer.1"),
        **map_convolution(f"{layer}.body.2", f"{hf_layer}.layer.2"),
    }


def map_convolution(name: str, hf_name: str) -> dict[str, str | WeightConverter]:
    """A convolution with its batch norm."""
    return {f"{name}.conv": f"{hf_name}.convolution", f"{name}.norm": f"{hf_name}.normalization"}


RESNET = Architecture(
    hf_config=HfResNetConfig,
    config=ResNetConfig,
    classes={"ResNetForImageClassification": "classify-images", "ResNetModel": "encode-images"},
    name_map={**map_resnet("encoder", "resnet"), "heads.0.head": "classifier.1"},
    base_prefix="resnet.",
)
