"""What a folder of a model that reads images has: `preprocessor_config.json` in the place of tokens, kernels in the
place of tables."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field, field_validator
from torch import Tensor

from headwise.config.base import Config, validate
from headwise.errors import UserError
from headwise.interop.folders import read_json
from headwise.interop.hf.architecture import Key, Schema, stacked
from headwise.vision.pixels import Pixels

PROCESSOR = "preprocessor_config.json"
LARGEST = 255  # the byte that is 1
BICUBIC = 3  # Pillow's number for it
Sides = int | tuple[int, int]


class TheirImages(Schema):
    """Of a model that reads images. Its `ours` has `image` and `channels`, whatever they are called there."""

    unread: ClassVar[Collection[str]] = ("tie_word_embeddings",)  # there are no words

    num_channels: int = Field(3, gt=0)


def pair(sides: Sides) -> tuple[int, int]:
    """Rows and columns, for which one number may stand."""
    return (sides, sides) if isinstance(sides, int) else sides


def kernel(name: str) -> Key:
    """A convolution of theirs that cuts patches, which is one product here (`PatchEmbedding`)."""
    return Key((name,), _flattened, _folded)


def vectors(*names: str) -> Key:
    """Tensors (1, n, width) of theirs whose rows stand one after the other in ours: class_tokens, places of a grid."""
    return Key(names, _together, lambda tensor, sizes: [part.unsqueeze(0) for part in tensor.chunk(len(names))])


def _flattened(parts: Sequence[Tensor]) -> Tensor:
    return parts[0].flatten(1) if parts[0].dim() > 1 else parts[0]  # (D, C, P, P) -> (D, CPP)


def _folded(tensor: Tensor, sizes: Sequence[int]) -> Sequence[Tensor]:
    return (tensor.unflatten(1, tuple(sizes)) if tensor.dim() > 1 else tensor,)  # (D, CPP) -> (D, C, P, P)


def _together(parts: Sequence[Tensor]) -> Tensor:
    return stacked([part[0] for part in parts])  # k x (1, n, D) -> (kn, D)


class Processor(Config):
    """How `transformers` scales an image before its model reads it: (byte * rescale_factor - mean) / std.

    DISCREPANCY: an image of another size than the model's is brought to it as everywhere here, the middle of it resized
    by bicubic interpolation, and not as the processor would resize and cut it.
    """

    image_mean: tuple[float, ...] = (0.5,)
    image_std: tuple[float, ...] = (0.5,)
    do_rescale: bool = True
    rescale_factor: float = Field(1 / LARGEST, gt=0)
    do_normalize: bool = True

    @field_validator("image_mean", "image_std", mode="before")
    @classmethod
    def _each(cls, value: Any) -> Any:
        return (value,) if isinstance(value, int | float) else value

    def pixels(self, image: tuple[int, int], channels: int) -> Pixels:
        """The same for images of this shape, whose bytes are numbers from 0 to 1 here."""
        largest = LARGEST * self.rescale_factor if self.do_rescale else LARGEST
        scale = (self.image_mean, self.image_std) if self.do_normalize else ((0.0,), (1.0,))
        if any(len(values) not in (1, channels) for values in scale):
            raise UserError(f"{PROCESSOR}: image_mean and image_std are not of {channels} channels; correct it")
        mean, std = (tuple(value / largest for value in values * (channels // len(values))) for values in scale)
        return Pixels(*image, channels, mean, std)


def read_pixels(folder: Path, image: tuple[int, int], channels: int) -> Pixels | None:
    """How a folder's model reads images; None where nothing says it."""
    path = folder / PROCESSOR
    if not path.is_file():
        return None
    data = read_json(path)
    found: Processor = validate(Processor, {key: data[key] for key in Processor.model_fields if key in data}, str(path))
    return found.pixels(image, channels)


def processor(pixels: Pixels) -> dict[str, Any]:
    """`preprocessor_config.json`."""
    said = Processor(image_mean=pixels.mean, image_std=pixels.std).model_dump(mode="json")
    shape = {"do_resize": True, "resample": BICUBIC, "size": {"height": pixels.height, "width": pixels.width}}
    return {"image_processor_type": "ViTImageProcessor", **shape, **said}
