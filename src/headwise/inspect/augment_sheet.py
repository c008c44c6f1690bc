"""Contact sheets of data augmentation: images in columns, augmentations in rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headwise.inspect import colour
from headwise.inspect.svg import Drawing, Grid, Shape, Text, text_width

if TYPE_CHECKING:
    from torch import Tensor

    from headwise.vision.augment import Augmentation
    from headwise.vision.images import Images

TILE, GAP, MARGIN, LINE = 84.0, 8.0, 24.0, 12.0
MAX_LABEL = 18  # characters of a label below a tile


def draw_contact_sheet(
    images: Images, rows: Mapping[str, Sequence[Augmentation]], title: str, seed: int = 1
) -> Drawing:
    """Draw the images and below them, row by row, the results of each named sequence of augmentations.

    Labels are below the images; of mixed labels the two with the largest shares.
    """
    augmented = augment_rows(images, {"original": (), **rows}, seed)
    names = list_labels(images)
    height, width = images.pixels.shape[-2:]
    cell = TILE / width
    left = MARGIN + max(text_width(line, 12.5) for name in augmented for line in name.splitlines()) + 2 * GAP
    y, shapes = 64.0, list[Shape]([Text(MARGIN, 36, title, 19, bold=True)])
    for name, (pixels, shares) in augmented.items():
        for number, line in enumerate(name.splitlines()):
            style = (12.5, colour.INK) if number == 0 else (10.0, colour.SOFT)
            shapes.append(Text(MARGIN, y + 14 + 1.2 * LINE * number, line, *style, bold=number == 0))
        captions = [format_caption(row, names) for row in shares]
        for column, (tile, lines) in enumerate(zip(to_rgb(pixels), captions, strict=True)):
            x = left + column * (TILE + GAP)
            shapes.append(Grid(x, y, cell, tile))
            shapes += [
                Text(x, y + height * cell + LINE * (1 + n), line, 9.0, colour.SOFT) for n, line in enumerate(lines)
            ]
        y += height * cell + LINE * max(map(len, captions)) + 1.6 * GAP
    return Drawing(left + len(images) * (TILE + GAP) + MARGIN, y + MARGIN, tuple(shapes), title)


def augment_rows(
    images: Images, rows: Mapping[str, Sequence[Augmentation]], seed: int
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Apply each sequence of augmentations: pixels (N, C, H, W) in 0..1 and label shares (N, L) for each row. The state
    of torch's random generator is restored."""
    import torch

    names = list_labels(images)
    classes = torch.tensor([names.index(get_label(target)) for target in images.targets])
    augmented = {}
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        for name, augmentations in rows.items():
            pixels: Tensor = torch.from_numpy(np.array(images.pixels)) / 255
            targets = torch.nn.functional.one_hot(classes, len(names)).to(pixels.dtype)
            for augment in augmentations:
                pixels, targets = augment(pixels, targets)
            augmented[name] = (pixels[: len(images)].numpy(), targets[: len(images)].numpy())
    return augmented


def list_labels(images: Images) -> list[str]:
    return sorted({get_label(target) for target in images.targets})


def get_label(target: Any) -> str:
    """The label of an image; empty if its target is boxes."""
    return target if isinstance(target, str) else ""


def format_caption(shares: np.ndarray, names: Sequence[str]) -> list[str]:
    """Format the label, or the two largest shares of mixed labels in per cent.

    >>> format_caption(np.array([0.25, 0.75, 0.0]), ["cat", "dog", "elk"])
    ['dog 75 %', 'cat 25 %']
    """
    first, *others = np.argsort(-shares, kind="stable")[:2]
    if shares[first] > 0.995:
        return [names[first][:MAX_LABEL]]
    return [f"{names[number][:MAX_LABEL]} {100 * shares[number]:.0f} %" for number in (first, *others)]


def to_rgb(pixels: np.ndarray) -> np.ndarray:
    """Convert pixels in 0..1 to RGB bytes, (N, C, H, W) -> (N, H, W, 3); the first channel as grey if there are not
    three."""
    rgb = pixels if pixels.shape[1] == 3 else np.repeat(pixels[:, :1], 3, axis=1)
    return (255 * rgb.transpose(0, 2, 3, 1).clip(0, 1)).round().astype(np.uint8)


def select_by_label(images: Images, count: int) -> Images:
    """Select `count` images, taking the labels in turn."""
    counts = Counter[str]()
    rounds = []
    for target in images.targets:
        rounds.append(counts[get_label(target)])
        counts[get_label(target)] += 1
    return images.take(np.argsort(rounds, kind="stable")[:count])
