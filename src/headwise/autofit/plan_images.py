"""Choose model and schedule for images: classes, boxes, captions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from PIL import Image

from headwise.autofit.budget import Budget, explain_size, measure_speed
from headwise.autofit.roles import Shape
from headwise.errors import UserError
from headwise.vision.config import ImagesConfig
from headwise.vision.readers.tables import READERS

VISION = ((64, 4, 3), (96, 3, 4), (128, 4, 6), (192, 3, 8))
IMAGE_SIDE = 64  # pixels to which larger images are resized


def plan_images(data: ImagesConfig, shape: Shape, minutes: float) -> tuple[dict[str, Any], tuple[str, ...], int]:
    """A Vision Transformer, DETR or a captioner for images of one size: settings, reasons, and how many there are."""
    size, many = measure_images(data)
    side = min(max(size), IMAGE_SIDE)
    patch = max(side // 8, 2)
    side = side // patch * patch
    data = data.replace(size=(side, side), damaged="skip", **({} if data.test else {"test_fraction": 0.1}))
    patches = (side // patch) ** 2
    budget = Budget(minutes, many * patches, measure_speed())
    (width, heads, depth), epochs = budget.choose(VISION)
    batch, warmup = budget.choose_batch(epochs, 8 * patches, 64 * patches)
    model: dict[str, Any] = {"width": width, "heads": heads, "depth": depth, "hidden": 2 * width}
    settings: dict[str, Any] = {}
    if shape == "images":
        model |= {"kind": "vit", "patch": patch, "drop_path": 0.1}
        settings["task"] = {"augment": [{"kind": "shift", "by": max(side // 16, 1)}]}
        form = "a Vision Transformer"
    elif shape == "captions":
        model |= {"kind": "captioner", "patch": patch, "decoder": {"depth": 2}}
        settings["tokeniser"] = {"kind": "words"}
        form = "a Vision Transformer that reads and a decoder that writes"
    else:
        model = {
            "kind": "detr-small", "wiring": "pre", "dropout": 0.0, "queries": 16, "width": 64, "hidden": 128,
            "depth": 1, "decoder": {"depth": 2}, "backbone": {"width": 24, "depths": [1, 1], "bottleneck": False},
        }  # fmt: skip
        settings["task"] = {"flip": 0.5}
        form = "a small DETR"
    train = {
        "minutes": minutes,
        "batch_size": min(batch // patches, 16 if shape == "boxes" else 64),
        "label_smoothing": 0.1 if shape == "images" else 0.0,
        "schedule": {"kind": "cosine", "lr": 0.001, "warmup": min(warmup, 100), "floor": 0.01},
        "optimizer": {"kind": "adamw", "weight_decay": 0.05},
    }
    reasons = (
        f"images resized to {side} x {side} pixels",
        f"{form} on patches of {patch} x {patch}, width {model['width']}: {explain_size(epochs)}",
    )
    return {**settings, "data": data, "model": model, "train": train}, reasons, many


def measure_images(data: ImagesConfig) -> tuple[tuple[int, int], int]:
    """The median width and height of the images, from a sample of their headers, and their number."""
    paths = tuple(Path(path) for path in data.train)
    parts = READERS[data.format](paths, data)
    index = parts.get("train", parts.get("", next(iter(parts.values()))))
    files = index.source.files[:: max(len(index.source.files) // 200, 1)]
    sizes = sorted((size for path in files if (size := read_image_size(path))), key=max)
    if not sizes:
        raise UserError(f"{files[0]}: is not an image that can be read, nor are the others; replace them")
    return sizes[len(sizes) // 2], len(index.targets)


def read_image_size(path: Path) -> tuple[int, int] | None:
    """Width and height of an image, from its header; None if it is damaged."""
    try:
        with Image.open(path) as image:
            return image.size
    except (OSError, ValueError, Image.DecompressionBombError):
        return None
