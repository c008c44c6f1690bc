"""Image data sets: the user's files or a data set by name, split into training, validation and test parts."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np

from headwise.data.cache import resolve_cache_root
from headwise.errors import UserError
from headwise.vision.cache import DecodedImages, DecodeSettings, Order, load_decoded
from headwise.vision.config import ImagesConfig
from headwise.vision.image_index import ImageIndex
from headwise.vision.images import ImageCorpus, Images
from headwise.vision.named_sets import GENERATED, generate_set, resolve_name
from headwise.vision.readers.tables import READERS, UNLABELLED

PARTS = ("train", "valid", "test")


def load_images(config: ImagesConfig) -> ImageCorpus:
    """Load the parts of an image data set; without `valid`, a validation part is held out of the training part.

    The split depends on the bytes of the images and, if it is stratified, on their classes: not on a seed, on names or
    on the order of files. Identical images are in the same part: no held-out image is in the training part.
    """
    if config.name in GENERATED:
        return generate_set(config)
    config = resolve_name(config)
    indices = _index_parts(config)
    root = resolve_cache_root(config.cache)
    settings = DecodeSettings(config.size, config.channels, skip_damaged=config.damaged == "skip")
    stratify = config.format not in UNLABELLED if config.stratify == "auto" else config.stratify
    order: Order = "stratified" if stratify else "fingerprint"
    train = load_decoded(indices["train"], replace(settings, order=order), root)
    slices = _split_train(train.fingerprints, config, set(indices))
    corpus = {part: _select_images(indices["train"], train, span) for part, span in slices.items()}
    settings = replace(settings, channels=train.pixels.shape[1])
    for part in indices.keys() - slices.keys():
        corpus[part] = _select_images(indices[part], load_decoded(indices[part], settings, root))
        _check_size(corpus[part], corpus["train"])
    if config.format not in UNLABELLED:
        _check_labels(corpus)
    return ImageCorpus(**corpus, files=_list_files(config, indices))


def _index_parts(config: ImagesConfig) -> dict[str, ImageIndex]:
    """Index the files of each part. Files of `train` may hold other parts, too."""
    indices = dict[str, ImageIndex]()
    for part in PARTS:
        names: tuple[str, ...] = getattr(config, part)
        if not names:
            continue
        paths = _resolve_paths(config, names)
        stored = READERS[config.format](paths, config)
        index = stored.get(part, stored.get(""))
        if index is None:
            raise UserError(f"data.{part}: {paths[0]} has no part called {part}")
        if part == "train":
            indices |= {other: other_index for other, other_index in stored.items() if other}
        indices[part] = index
    return indices


def _resolve_paths(config: ImagesConfig, names: tuple[str, ...]) -> tuple[Path, ...]:
    return tuple(Path(config.root).expanduser() / Path(name).expanduser() for name in names)


def _list_files(config: ImagesConfig, indices: dict[str, ImageIndex]) -> tuple[Path, ...]:
    """All files that were read: those that the config names, such as annotations, and those of the images."""
    named = _resolve_paths(config, (*config.train, *config.valid, *config.test))
    files = [path for path in named if path.is_file()]
    files += [path for index in indices.values() for path in index.source.files]
    return tuple(dict.fromkeys(files))


def _split_train(fingerprints: np.ndarray, config: ImagesConfig, present: set[str]) -> dict[str, slice]:
    """Split the training images, identical ones side by side, into the parts that are not `present`: test, valid,
    train."""
    sizes = {
        "test": math.ceil(config.test_fraction * len(fingerprints)),
        "valid": min(math.ceil(config.valid_fraction * len(fingerprints)), config.valid_size),
    }
    slices, start = dict[str, slice](), 0
    for part in (part for part in sizes if part not in present):
        end = min(start + sizes[part], len(fingerprints))
        # Identical images are in one part, so it may be a little larger than its size.
        while start < end < len(fingerprints) and fingerprints[end] == fingerprints[end - 1]:
            end += 1
        slices[part], start = slice(start, end), end
    if start == len(fingerprints):
        raise UserError(f"{config.train[0]}: too few different images to hold some out; name others in data.valid")
    return {**slices, "train": slice(start, start + config.max_images if config.max_images else None)}


def _select_images(index: ImageIndex, decoded: DecodedImages, span: slice = slice(None)) -> Images:
    numbers = decoded.indices[span].tolist()
    targets, names = [index.targets[number] for number in numbers], [index.names[number] for number in numbers]
    return Images(decoded.pixels[span], targets, names)


def _check_size(images: Images, train: Images) -> None:
    sizes = [f"{part.pixels.shape[2]} x {part.pixels.shape[3]}" for part in (images, train)]
    if len(set(sizes)) > 1:
        raise UserError(
            f"{images.names[0]}: has {sizes[0]} pixels, but images to train on have {sizes[1]}; "
            "set data.size to bring all images to one size"
        )


def _check_labels(corpus: dict[str, Images]) -> None:
    """Check that there are two labels or more, and that each occurs in training."""
    known = set(corpus["train"].targets)
    if len(known) < 2:
        raise UserError(
            f"{corpus['train'].names[0]}: all images to train on are of the class '{min(known)}'; add another"
        )
    for part in ("valid", "test"):
        for label, name in zip(corpus[part].targets, corpus[part].names, strict=True):
            if label not in known:
                raise UserError(f"{name}: is of the class '{label}', of which there is no image to train on; add some")
