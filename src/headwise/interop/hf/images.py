"""Configs of image models, and converters of image tensors. `preprocessor_config.json` is in image_processor.py."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field
from torch import Tensor

from headwise.interop.hf.architecture import HfConfig, NameMap, WeightConverter, concatenate

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
    image_processor: ClassVar[str] = "ViTImageProcessor"  # of a preprocessor_config.json that names none
    any_size: ClassVar[bool] = False  # the model reads images of the processor's size, not only of its own
    interpolates: ClassVar[bool] = False  # so it does with interpolated position embeddings

    num_channels: int = Field(3, gt=0)

    def build_name_map(self) -> NameMap:
        """Further tensor names, which depend on the config."""
        return {}

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
