"""What a classifier sees in low and in high frequencies (Bai et al. 2022, section 3; Park and Kim 2022).

Frequencies are counted in periods over the image, down and across. A disc of radius r about none holds the low ones;
what lies outside it is high. Low-pass and high-pass images of one radius add up to the image.

Letters: N images, C channels, H rows, W columns, F = W // 2 + 1 frequencies across, R radii.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from headwise.blocks.evaluation import get_device, inference_mode
from headwise.errors import UserError
from headwise.inspect import colour
from headwise.inspect.files import figure

if TYPE_CHECKING:
    from headwise.tasks.classify_images import ClassifyImages
    from headwise.vision.images import Images


@dataclass(frozen=True)
class ByFrequency:
    """Accuracies in per cent: of the images, and of their low and high frequencies for each radius."""

    radii: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    whole: float
    images: int

    def to_json(self) -> dict[str, Any]:
        radii = [round(radius, 2) for radius in self.radii]
        return {"images": self.images, "whole": self.whole, "radii": radii, "low": self.low, "high": self.high}

    def table(self) -> str:
        rows = zip(self.radii, self.low, self.high, strict=True)
        lines = [f"{radius:6.2f}  {low:6.2f}  {high:6.2f}" for radius, low, high in rows]
        return "\n".join([f"accuracy {self.whole:.2f} of {self.images:,} images", "radius     low    high", *lines])

    def save(self, out: Path, title: str) -> Path:
        return plot({title: self}, out)


def periods(height: int, width: int, device: torch.device | None = None) -> Tensor:
    """How far each place of a real Fourier transform is from the mean, in periods: (H, F)."""
    down, across = torch.fft.fftfreq(height, device=device), torch.fft.rfftfreq(width, device=device)
    return torch.hypot(height * down[:, None], width * across)


def low_pass(images: Tensor, radius: float) -> Tensor:
    """What frequencies of at most `radius` periods make of images (..., H, W)."""
    return _passed(images, radius, low=True)


def high_pass(images: Tensor, radius: float) -> Tensor:
    """What higher frequencies make of images: edges and grain, without the mean."""
    return _passed(images, radius, low=False)


def _passed(images: Tensor, radius: float, low: bool) -> Tensor:
    height, width = images.shape[-2:]
    inside = periods(height, width, images.device) <= radius
    return torch.fft.irfft2(torch.fft.rfft2(images) * (inside == low), s=(height, width))


def energy_above(images: Tensor, radius: float) -> Tensor:
    """Which share of the energy of images (N, C, H, W), their means aside, is in frequencies above a radius: (N,)."""
    varying = images - images.mean((-2, -1), keepdim=True)
    kept, all_ = (each.square().sum((1, 2, 3)) for each in (high_pass(varying, radius), varying))
    return kept / all_.clamp(min=torch.finfo(images.dtype).tiny)


def by_frequency(task: ClassifyImages, model: Any, images: Images, radii: Sequence[float] = ()) -> ByFrequency:
    """How many images a model recognises from their low, and from their high frequencies alone. Without radii, eight
    of which each doubles the area of the disc, up to all frequencies."""
    from headwise.tasks.classify_images import batch_images

    if not len(images):
        raise UserError("there are no images to filter; name a part that has some")
    height, width = images.pixels.shape[-2:]
    radii = tuple(radii) or tuple(float(periods(height, width).max()) / 2 ** (power / 2) for power in range(7, -1, -1))
    labels, device = task.encode_labels(list(images.targets)), get_device(model)
    right = torch.zeros(2 * len(radii) + 1, dtype=torch.int64, device=device)
    with inference_mode(model):
        for part, wanted in zip(batch_images(images.pixels), batch_images(labels), strict=True):
            pixels, wanted = task.pixels.scaled(part.to(device)), wanted.to(device)
            seen = [pixels, *(passed(pixels, r) for passed in (low_pass, high_pass) for r in radii)]
            right += torch.stack([(model(task.pixels.normalised(x)).argmax(-1) == wanted).sum() for x in seen])
    whole, *others = (round(100 * count / len(images), 2) for count in right.tolist())
    return ByFrequency(radii, tuple(others[: len(radii)]), tuple(others[len(radii) :]), whole, len(images))


def plot(found: dict[str, ByFrequency], out: Path) -> Path:
    """Accuracy over the radius, for one model or several; low frequencies to the left, high ones to the right."""
    radii = sorted({radius for each in found.values() for radius in each.radii})
    shades = colour.paint(np.linspace(0.4, 1, len(found)))
    with figure(out, 9, 4) as drawn:
        axes = drawn.subplots(1, 2, sharey=True)
        for (name, each), shade in zip(found.items(), shades, strict=True):
            hue = colour.name(shade)
            for ax, values in zip(axes, (each.low, each.high), strict=True):
                ax.plot(each.radii, values, "o-", color=hue, linewidth=1.8, markersize=4, label=name)
                ax.axhline(each.whole, color=hue, linewidth=0.8, linestyle=":")
        for ax, title in zip(axes, ("frequencies up to the radius", "frequencies above it"), strict=True):
            ax.set(title=title, xlabel="radius, in periods over the image", xscale="log")
            ax.set_xticks(radii, [f"{radius:.3g}" for radius in radii])
            ax.minorticks_off()
            ax.grid(alpha=0.3)
            ax.spines[["top", "right"]].set_visible(False)
        axes[0].set(ylabel="accuracy, %", ylim=(0, 100))
        axes[0].legend(frameon=False, fontsize="small")
    return out
