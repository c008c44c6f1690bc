"""Contact sheets: images in columns, what became of them in rows."""

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
MOST = 18  # characters of a label under a tile


def sheet(images: Images, rows: Mapping[str, Sequence[Augmentation]], title: str, seed: int = 1) -> Drawing:
    """The images as they are and, row by row, changed by the augmentations of that name, one after the other.

    Labels stand under the images; where they are mixed, the two that have most.
    """
    shown = augmented(images, {"as they are": (), **rows}, seed)
    names = labels(images)
    height, width = images.pixels.shape[-2:]
    cell = TILE / width
    left = MARGIN + max(text_width(line, 12.5) for name in shown for line in name.splitlines()) + 2 * GAP
    y, drawn = 64.0, list[Shape]([Text(MARGIN, 36, title, 19, bold=True)])
    for name, (pixels, shares) in shown.items():
        for number, line in enumerate(name.splitlines()):
            style = (12.5, colour.INK) if number == 0 else (10.0, colour.SOFT)
            drawn.append(Text(MARGIN, y + 14 + 1.2 * LINE * number, line, *style, bold=number == 0))
        captions = [caption(row, names) for row in shares]
        for column, (tile, lines) in enumerate(zip(painted(pixels), captions, strict=True)):
            x = left + column * (TILE + GAP)
            drawn.append(Grid(x, y, cell, tile))
            drawn += [
                Text(x, y + height * cell + LINE * (1 + n), line, 9.0, colour.SOFT) for n, line in enumerate(lines)
            ]
        y += height * cell + LINE * max(map(len, captions)) + 1.6 * GAP
    return Drawing(left + len(images) * (TILE + GAP) + MARGIN, y + MARGIN, tuple(drawn), title)


def augmented(
    images: Images, rows: Mapping[str, Sequence[Augmentation]], seed: int
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Pixels (N, C, H, W) in 0..1 and shares of labels (N, L) for each row, as many as there are images. The generator
    is left as it was."""
    import torch

    names = labels(images)
    which = torch.tensor([names.index(label(target)) for target in images.targets])
    found = {}
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        for name, chain in rows.items():
            pixels: Tensor = torch.from_numpy(np.array(images.pixels)) / 255
            targets = torch.nn.functional.one_hot(which, len(names)).to(pixels.dtype)
            for augment in chain:
                pixels, targets = augment(pixels, targets)
            found[name] = (pixels[: len(images)].numpy(), targets[: len(images)].numpy())
    return found


def labels(images: Images) -> list[str]:
    return sorted({label(target) for target in images.targets})


def label(target: Any) -> str:
    """What is written under an image: nothing where boxes are to be found."""
    return target if isinstance(target, str) else ""


def caption(shares: np.ndarray, names: Sequence[str]) -> list[str]:
    """The label, or the two largest shares of labels with their per cents.

    >>> caption(np.array([0.25, 0.75, 0.0]), ["cat", "dog", "elk"])
    ['dog 75 %', 'cat 25 %']
    """
    first, *others = np.argsort(-shares, kind="stable")[:2]
    if shares[first] > 0.995:
        return [names[first][:MOST]]
    return [f"{names[number][:MOST]} {100 * shares[number]:.0f} %" for number in (first, *others)]


def painted(pixels: np.ndarray) -> np.ndarray:
    """Numbers in 0..1 as colours: (N, C, H, W) -> (N, H, W, 3) bytes; where there are not three channels, the first."""
    three = pixels if pixels.shape[1] == 3 else np.repeat(pixels[:, :1], 3, axis=1)
    return (255 * three.transpose(0, 2, 3, 1).clip(0, 1)).round().astype(np.uint8)


def assorted(images: Images, count: int) -> Images:
    """The first images of different labels, in turn, until there are `count`."""
    seen = Counter[str]()
    rounds = []
    for target in images.targets:
        rounds.append(seen[label(target)])
        seen[label(target)] += 1
    return images.take(np.argsort(rounds, kind="stable")[:count])
