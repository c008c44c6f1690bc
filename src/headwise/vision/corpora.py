"""Which images to train, validate and test on: the user's files, or a set by name."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np

from headwise.data.cache import resolve_cache_root
from headwise.errors import UserError
from headwise.vision.cache import DecodedImages, DecodeSettings, load_decoded
from headwise.vision.config import ImagesConfig
from headwise.vision.formats import FORMATS, UNLABELLED
from headwise.vision.image_index import ImageIndex
from headwise.vision.images import ImageCorpus, Images
from headwise.vision.named_sets import GENERATED, generate_set, resolve_name

PARTS = ("train", "valid", "test")


def load_images(config: ImagesConfig) -> ImageCorpus:
    """The parts of a set of images; a validation part that is not given is held out of the training part.

    What is held out depends on the bytes of the images alone, not on a seed, on names or on the order of files, and
    equal images go together: no held-out image is ever seen in training.
    """
    if config.name in GENERATED:
        return generate_set(config)
    config = resolve_name(config)
    listed = _index_parts(config)
    root, way = (
        resolve_cache_root(config.cache),
        DecodeSettings(config.size, config.channels, skip=config.damaged == "skip"),
    )
    train = load_decoded(listed["train"], replace(way, by_print=True), root)
    spans = _split_train(train.prints, config, set(listed))
    corpus = {part: _select_images(listed["train"], train, span) for part, span in spans.items()}
    way = replace(way, channels=train.pixels.shape[1])
    for part in listed.keys() - spans.keys():
        corpus[part] = _select_images(listed[part], load_decoded(listed[part], way, root))
        _check_size(corpus[part], corpus["train"])
    if config.format not in UNLABELLED:
        _check_labels(corpus)
    return ImageCorpus(**corpus)


def _index_parts(config: ImagesConfig) -> dict[str, ImageIndex]:
    """What the files of each part hold. Files to train on may hold other parts, too."""
    found = dict[str, ImageIndex]()
    for part in PARTS:
        names: tuple[str, ...] = getattr(config, part)
        if not names:
            continue
        paths = tuple(Path(config.root).expanduser() / Path(name).expanduser() for name in names)
        inside = FORMATS[config.format](paths, config)
        own = inside.get(part, inside.get(""))
        if own is None:
            raise UserError(f"data.{part}: {paths[0]} has no part called {part}")
        if part == "train":
            found |= {other: listing for other, listing in inside.items() if other}
        found[part] = own
    return found


def _split_train(prints: np.ndarray, config: ImagesConfig, given: set[str]) -> dict[str, slice]:
    """Which images, in the order of their fingerprints, make the parts that are not given: test, valid, then train."""
    wanted = {
        "test": math.ceil(config.test_fraction * len(prints)),
        "valid": min(math.ceil(config.valid_fraction * len(prints)), config.valid_size),
    }
    spans, start = dict[str, slice](), 0
    for part in (part for part in wanted if part not in given):
        last = min(start + wanted[part], len(prints)) - 1
        # Equal images stay together, so a part may be a little larger than asked for.
        end = int(np.searchsorted(prints, prints[last], side="right")) if wanted[part] else start
        spans[part], start = slice(start, end), end
    if start == len(prints):
        raise UserError(f"{config.train[0]}: too few different images to hold some out; name others in data.valid")
    return {**spans, "train": slice(start, start + config.max_images if config.max_images else None)}


def _select_images(listing: ImageIndex, decoded: DecodedImages, span: slice = slice(None)) -> Images:
    numbers = decoded.numbers[span].tolist()
    targets, names = ([side[number] for number in numbers] for side in (listing.targets, listing.names))
    return Images(decoded.pixels[span], targets, names)


def _check_size(images: Images, train: Images) -> None:
    sizes = [f"{each.pixels.shape[2]} x {each.pixels.shape[3]}" for each in (images, train)]
    if len(set(sizes)) > 1:
        raise UserError(
            f"{images.names[0]}: has {sizes[0]} pixels, but images to train on have {sizes[1]}; "
            "set data.size to bring all images to one size"
        )


def _check_labels(corpus: dict[str, Images]) -> None:
    """Labels can be learnt where there are two or more, and each of them is seen in training."""
    known = set(corpus["train"].targets)
    if len(known) < 2:
        raise UserError(
            f"{corpus['train'].names[0]}: all images to train on are of the class '{min(known)}'; add another"
        )
    for part in ("valid", "test"):
        for label, name in zip(corpus[part].targets, corpus[part].names, strict=True):
            if label not in known:
                raise UserError(f"{name}: is of the class '{label}', of which there is no image to train on; add some")
