"""What models that read images have in common."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, field_validator, model_validator

from headwise.blocks.images import ImageEncoder
from headwise.errors import UserError
from headwise.models.config import ModelConfig

Side = Annotated[int, Field(ge=1)]
# Settings of models of layers that only words make use of.
WORDS = (
    "scaled",
    "embedding_norm",
    "embeddings",
    "token_types",
    "next_sentence_head",
    "tie",
    "output_bias",
    "suppress_ids",
)


class ImageModelConfig(ModelConfig):
    """Reads images of `image` rows and columns of pixels. As vocabularies are for texts, the images' size and channels
    are the data's to decide: `with_image_size` is the model for them."""

    tasks = ("classify-images",)
    unread: ClassVar[tuple[str, ...]] = WORDS  # settings of a base that have no effect here
    image: tuple[Side, Side] = (224, 224)  # rows and columns, or one side
    channels: int = Field(3, ge=1)

    @field_validator("image", mode="before")
    @classmethod
    def _square(cls, value: Any) -> Any:
        return (value, value) if isinstance(value, int) else value

    @model_validator(mode="after")
    def _wordless(self) -> Self:
        for name, field in type(self).model_fields.items():
            if name in self.unread and getattr(self, name) != field.default:
                raise ValueError(f"{name}: has no effect on images; leave it out")
        if getattr(getattr(self, "positions", None), "kind", "") == "tree":
            raise ValueError("positions: patches of an image have no dependency tree; choose another kind")
        return self

    def with_image_size(self, height: int, width: int, channels: int) -> Any:
        """The same for other images."""
        return self.changed(image=(height, width), channels=channels)

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
    def outer(self) -> int:
        """How wide the outputs of its encoder are."""
        raise TypeError(f"{type(self).__name__} does not say how wide it is")

    def encoder(self) -> ImageEncoder:
        """What reads images, without a head: to label them, or for a decoder that writes about them."""
        raise TypeError(f"{type(self).__name__} has no encoder")
