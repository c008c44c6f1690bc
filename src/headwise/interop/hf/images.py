"""Configs of image models, and converters of image tensors. `preprocessor_config.json` is in image_processor.py."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field
from torch import Tensor

from headwise.errors import UserError
from headwise.interop.hf.architecture import Architecture, HfConfig, NameMap, WeightConverter, concatenate
from headwise.interop.hf.image_processor import PROCESSOR, build_processor_config, read_pixels
from headwise.interop.hf.labels import build_config_json, choose_problem_type, infer_classification_task, read_labels
from headwise.vision.pixels import Pixels

Side = Annotated[int, Field(gt=0)]
ImageSize = Side | tuple[Side, Side]
JsonFiles = dict[str, dict[str, Any]]  # file name -> contents


def _take_one_side(size: Any) -> Any:
    """A patch size may be written as height and width."""
    if isinstance(size, list | tuple) and len(size) == 2:
        if size[0] != size[1]:
            raise ValueError(f"patches of {size[0]} x {size[1]} pixels are not supported; only square ones are")
        return size[0]
    return size


PatchSize = Annotated[int, Field(gt=0), BeforeValidator(_take_one_side)]


class ImageConfig(HfConfig):
    """The `config.json` of an image model of `transformers` or timm. Its `to_settings` has `image` and `channels`."""

    any_size: ClassVar[bool] = False  # the model reads images of the processor's size, not only of its own
    interpolates: ClassVar[bool] = False  # so it does with interpolated position embeddings

    def build_name_map(self) -> NameMap:
        """Tensor names that depend on the config; they come before those of the architecture."""
        return {}

    def add_names(self, architecture: Architecture) -> Architecture:
        """An architecture with the tensor names that depend on the config."""
        names = self.build_name_map()
        return replace(architecture, name_map={**names, **architecture.name_map, **names})

    def check_image_size(self, where: str) -> None:
        """Refuse a size of images that the other library fails on; errors begin with `where`."""

    @abstractmethod
    def read_class_name(self, architecture: Architecture, data: Mapping[str, Any], where: str) -> str:
        """The class that a `config.json` describes, of those of its architecture."""

    @abstractmethod
    def read_labels(self, data: Mapping[str, Any], task: str, where: str) -> list[str]:
        """The labels in a `config.json`, in the order of their ids."""

    @abstractmethod
    def read_pixels(self, folder: Path, config: Any) -> Pixels | None:
        """How the images of a folder are prepared, for a model of this config; None where the folder does not say."""

    @abstractmethod
    def build_files(self, class_name: str, task: str, labels: Sequence[str], pixels: Pixels) -> JsonFiles:
        """The JSON files of an exported folder."""


class HfImageConfig(ImageConfig):
    """The `config.json` of an image model of `transformers`."""

    ignored_keys: ClassVar[Collection[str]] = ("tie_word_embeddings",)  # there are no word embeddings
    image_processor: ClassVar[str] = "ViTImageProcessor"  # of a preprocessor_config.json that names none

    num_channels: int = Field(3, gt=0)

    def read_class_name(self, architecture: Architecture, data: Mapping[str, Any], where: str) -> str:
        return architecture.read_class_name(data, where)

    def read_labels(self, data: Mapping[str, Any], task: str, where: str) -> list[str]:
        labels = read_labels(data, where)
        if task == "classify-images" and infer_classification_task(data, labels, where) != ("classify", {}):
            raise UserError(f"{where}: problem_type: of images only one label of several is supported")
        return labels

    def read_pixels(self, folder: Path, config: Any) -> Pixels | None:
        return read_pixels(folder, config.image, config.channels, self.image_processor)

    def build_files(self, class_name: str, task: str, labels: Sequence[str], pixels: Pixels) -> JsonFiles:
        choose_problem_type(task, "softmax", labels)  # refuses a single label
        return {
            "config.json": build_config_json(self, class_name, labels),
            PROCESSOR: build_processor_config(pixels),
        }


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
