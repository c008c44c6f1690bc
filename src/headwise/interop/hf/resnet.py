"""ResNet of `transformers`, alone and as the backbone of a detector."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from headwise.interop.hf.architecture import Architecture, Key
from headwise.interop.hf.images import Sides, TheirImages, pair
from headwise.models.resnet import ResNetConfig


class TheirResNet(TheirImages):
    """Stages that are each twice as wide as the one before. Any size of images will do, so that no key says it there;
    the one that does is ours, so that it survives the way there and back."""

    unread = (*TheirImages.unread, "stage_names", "out_features", "out_indices")  # of a backbone

    model_type: Literal["resnet"] = "resnet"
    image_size: Sides = 224
    embedding_size: int = Field(64, gt=0)
    hidden_sizes: tuple[int, ...] = Field((256, 512, 1024, 2048), min_length=1)
    depths: tuple[int, ...] = Field((3, 4, 6, 3), min_length=1)
    layer_type: Literal["basic", "bottleneck"] = "bottleneck"
    hidden_act: Literal["relu"] = "relu"
    downsample_in_first_stage: Literal[False] = False
    downsample_in_bottleneck: Literal[False] = False

    @model_validator(mode="after")
    def _doubling(self) -> Self:
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

    def ours(self, task: str, names: Collection[str]) -> dict[str, Any]:
        return {"image": pair(self.image_size), **self._settings()}

    @classmethod
    def of(cls, config: Any, vocab: int) -> Self:
        return cls(
            image_size=config.image,
            num_channels=config.channels,
            embedding_size=config.width,
            hidden_sizes=config.widths,
            depths=config.depths,
            layer_type="bottleneck" if config.bottleneck else "basic",
        )


def backbone(ours: str, theirs: str) -> dict[str, str | Key]:
    """The names of everything but the head, under these two."""
    layer, inside = f"{ours}.stack.layers.{{stage}}.layers.{{i}}", f"{theirs}.encoder.stages.{{stage}}.layers.{{i}}"
    return {
        **convolved(f"{ours}.stem.patches.layers.0", f"{theirs}.embedder.embedder"),
        **convolved(f"{layer}.shortcut", f"{inside}.shortcut"),
        **{key: name for n in range(3) for key, name in convolved(f"{layer}.body.{n}", f"{inside}.layer.{n}").items()},
    }


def convolved(ours: str, theirs: str) -> dict[str, str | Key]:
    """A convolution with its batch norm."""
    return {f"{ours}.conv": f"{theirs}.convolution", f"{ours}.norm": f"{theirs}.normalization"}


RESNET = Architecture(
    theirs=TheirResNet,
    config=ResNetConfig,
    classes={"ResNetForImageClassification": "classify-images", "ResNetModel": "encode-images"},
    keys={**backbone("encoder", "resnet"), "heads.0.head": "classifier.1"},
    stem="resnet.",
)
