"""Settings of image models."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, field_validator, model_validator
from torch import nn

from headwise.blocks.heads import Pooler
from headwise.blocks.images import ImageEncoder
from headwise.blocks.pool import Pool
from headwise.config.base import Config
from headwise.errors import UserError

Side = Annotated[int, Field(ge=1)]


class ImageFields(Config):
    """Size and channels of the input images. Like a vocabulary they depend on the data: `with_image_size` gives the
    config for other images."""

    tasks: ClassVar[tuple[str, ...]] = ("classify-images",)
    image: tuple[Side, Side] = (224, 224)  # height and width in pixels, or one number for both
    channels: int = Field(3, ge=1)

    @field_validator("image", mode="before")
    @classmethod
    def _expand_side(cls, value: Any) -> Any:
        return (value, value) if isinstance(value, int) else value

    @model_validator(mode="after")
    def _refuse_tree(self) -> Self:
        if getattr(getattr(self, "positions", None), "kind", "") == "tree":
            raise ValueError("positions: patches of an image have no dependency tree; choose another kind")
        return self

    def with_image_size(self, height: int, width: int, channels: int) -> Any:
        """The config for images of this size."""
        return self.replace(image=(height, width), channels=channels)

    @property
    def input_shape(self) -> tuple[int, int, int]:
        """Channels, rows and columns of an image."""
        return self.channels, *self.image

    def grid(self, patch: int) -> tuple[int, int]:
        """Rows and columns of patches."""
        rows, columns = self.image
        if rows % patch or columns % patch:
            raise UserError(
                f"image: {rows} x {columns} pixels cannot be cut into patches of {patch} x {patch}; "
                "change data.size or model.patch"
            )
        return rows // patch, columns // patch

    @property
    def output_width(self) -> int:
        """Width of the encoder's outputs."""
        raise TypeError(f"{type(self).__name__} does not say how wide its outputs are")

    @property
    def pooling(self) -> str:
        """Kind of pooling of the encoder's outputs."""
        return "mean"

    def build_pool(self) -> nn.Module:
        """The pooling of an encoder without a head."""
        if self.pooling == "pooler":
            return nn.Sequential(Pool("first"), Pooler(self.output_width))
        return Pool(self.pooling)

    def encoder(self) -> ImageEncoder:
        """The image encoder without a head: for a classifier, a detector, or a decoder with cross-attention."""
        raise TypeError(f"{type(self).__name__} has no encoder")

    def init_weights(self, model: nn.Module) -> None:
        """Initialise the weights of a new encoder or classifier."""
        raise TypeError(f"{type(self).__name__} does not say how its weights are initialised")
