"""Folders of image models: `preprocessor_config.json` instead of a tokeniser, and converters of image tensors."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, field_validator
from torch import Tensor

from headwise.config.base import Config, validate
from headwise.errors import UserError
from headwise.interop.folders import read_json
from headwise.interop.hf.architecture import HfConfig, WeightConverter, concatenate
from headwise.vision.pixels import Pixels

PROCESSOR = "preprocessor_config.json"
MAX_BYTE = 255
BICUBIC = 3  # Pillow's number
Side = Annotated[int, Field(gt=0)]
ImageSize = Side | tuple[Side, Side]


def _take_one_side(size: Any) -> Any:
    """A patch size may be written as height and width."""
    if isinstance(size, list | tuple) and len(size) == 2:
        if size[0] != size[1]:
            raise ValueError(f"patches of {size[0]} x {size[1]} pixels are not supported; only square ones are")
        return size[0]
    return size


PatchSize = Annotated[int, Field(gt=0), BeforeValidator(_take_one_side)]


class HfImageConfig(HfConfig):
    """The `config.json` of an image model. Its `to_settings` has `image` and `channels`."""

    ignored_keys: ClassVar[Collection[str]] = ("tie_word_embeddings",)  # there are no word embeddings

    num_channels: int = Field(3, gt=0)

    def check_image_size(self, where: str) -> None:
        """Refuse a size of images that `transformers` fails on; errors begin with `where`."""


def to_pair(size: ImageSize) -> tuple[int, int]:
    """Height and width, for which one number may stand."""
    return (size, size) if isinstance(size, int) else size


def flatten_kernel(name: str) -> WeightConverter:
    """A convolution that cuts patches, which is a matrix product in `PatchEmbedding`."""
    return WeightConverter((name,), _flatten, _unflatten)


def concatenate_vectors(*names: str) -> WeightConverter:
    """Tensors (1, n, width) whose rows are concatenated here: class tokens, position embeddings of a grid."""
    return WeightConverter(
        names, _concatenate_rows, lambda tensor, sizes: [part.unsqueeze(0) for part in tensor.chunk(len(names))]
    )


def _flatten(parts: Sequence[Tensor]) -> Tensor:
    return parts[0].flatten(1) if parts[0].dim() > 1 else parts[0]  # (D, C, P, P) -> (D, CPP)


def _unflatten(tensor: Tensor, sizes: Sequence[int]) -> Sequence[Tensor]:
    return (tensor.unflatten(1, tuple(sizes)) if tensor.dim() > 1 else tensor,)  # (D, CPP) -> (D, C, P, P)


def _concatenate_rows(parts: Sequence[Tensor]) -> Tensor:
    return concatenate([part[0] for part in parts])  # k x (1, n, D) -> (kn, D)


class Processor(Config):
    """The image processor of `transformers`: (byte * rescale_factor - mean) / std.

    DISCREPANCY: an image of another size than the model's is centre-cropped and resized by bicubic interpolation, as
    everywhere here, and not as the processor would resize and crop it.
    """

    image_mean: tuple[float, ...] = (0.5,)
    image_std: tuple[float, ...] = (0.5,)
    do_rescale: bool = True
    rescale_factor: float = Field(1 / MAX_BYTE, gt=0)
    do_normalize: bool = True

    @field_validator("image_mean", "image_std", mode="before")
    @classmethod
    def _wrap_number(cls, value: Any) -> Any:
        return (value,) if isinstance(value, int | float) else value

    def to_pixels(self, image: tuple[int, int], channels: int) -> Pixels:
        """The same normalisation for images of this shape with pixels from 0 to 1."""
        scale = MAX_BYTE * self.rescale_factor if self.do_rescale else MAX_BYTE
        mean_std = (self.image_mean, self.image_std) if self.do_normalize else ((0.0,), (1.0,))
        if any(len(values) not in (1, channels) for values in mean_std):
            raise UserError(f"{PROCESSOR}: image_mean and image_std are not of {channels} channels; correct it")
        mean, std = (tuple(value / scale for value in values * (channels // len(values))) for values in mean_std)
        return Pixels(*image, channels, mean, std)


def read_pixels(folder: Path, image: tuple[int, int], channels: int) -> Pixels | None:
    """Read the pixel normalisation of a folder; None without a `preprocessor_config.json`."""
    path = folder / PROCESSOR
    if not path.is_file():
        return None
    data = read_json(path)
    known = {key: data[key] for key in Processor.model_fields if key in data}
    processor: Processor = validate(Processor, known, str(path))
    return processor.to_pixels(image, channels)


def build_processor_config(pixels: Pixels) -> dict[str, Any]:
    """`preprocessor_config.json`."""
    normalisation = Processor(image_mean=pixels.mean, image_std=pixels.std).model_dump(mode="json")
    shape = {"do_resize": True, "resample": BICUBIC, "size": {"height": pixels.height, "width": pixels.width}}
    return {"image_processor_type": "ViTImageProcessor", **shape, **normalisation}
