"""Accuracy of an image classifier on low-pass and high-pass filtered images (Bai et al. 2022, section 3; Park and Kim
2022).

Frequencies are in periods per image, vertical and horizontal. Low frequencies are inside a disc of radius r around
zero, high ones outside. The low-pass and high-pass images of one radius add up to the image.

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
from headwise.inspect.files import open_figure

if TYPE_CHECKING:
    from headwise.tasks.classify_images import ClassifyImages
    from headwise.vision.images import Images


@dataclass(frozen=True)
class ByFrequency:
    """Accuracies in per cent: on the images, and on their low and high frequencies for each radius."""

    radii: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    accuracy: float
    images: int

    def to_json(self) -> dict[str, Any]:
        radii = [round(radius, 2) for radius in self.radii]
        return {"images": self.images, "accuracy": self.accuracy, "radii": radii, "low": self.low, "high": self.high}

    def table(self) -> str:
        rows = zip(self.radii, self.low, self.high, strict=True)
        lines = [f"{radius:6.2f}  {low:6.2f}  {high:6.2f}" for radius, low, high in rows]
        return "\n".join([f"accuracy {self.accuracy:.2f} of {self.images:,} images", "radius     low    high", *lines])

    def save(self, out: Path, title: str) -> Path:
        return plot({title: self}, out)


def compute_radii(height: int, width: int, device: torch.device | None = None) -> Tensor:
    """Radius of each frequency of a real Fourier transform, in periods per image: (H, F)."""
    down, across = torch.fft.fftfreq(height, device=device), torch.fft.rfftfreq(width, device=device)
    return torch.hypot(height * down[:, None], width * across)


def low_pass(images: Tensor, radius: float) -> Tensor:
    """Keep the frequencies of at most `radius` periods of images (..., H, W)."""
    return _filter_frequencies(images, radius, low=True)


def high_pass(images: Tensor, radius: float) -> Tensor:
    """Keep the frequencies above `radius`: edges and texture, without the mean."""
    return _filter_frequencies(images, radius, low=False)


def _filter_frequencies(images: Tensor, radius: float, low: bool) -> Tensor:
    height, width = images.shape[-2:]
    inside = compute_radii(height, width, images.device) <= radius
    return torch.fft.irfft2(torch.fft.rfft2(images) * (inside == low), s=(height, width))


def compute_energy_above(images: Tensor, radius: float) -> Tensor:
    """Compute the share of the energy of images (N, C, H, W), without their means, above a radius: (N,)."""
    centred = images - images.mean((-2, -1), keepdim=True)
    high, total = (signal.square().sum((1, 2, 3)) for signal in (high_pass(centred, radius), centred))
    return high / total.clamp(min=torch.finfo(images.dtype).tiny)


def measure_by_frequency(task: ClassifyImages, model: Any, images: Images, radii: Sequence[float] = ()) -> ByFrequency:
    """Measure the accuracy on low frequencies alone and on high frequencies alone. The default is eight radii, each of
    which doubles the area of the disc, up to all frequencies."""
    from headwise.tasks.classify_images import batch_images

    if not len(images):
        raise UserError("there are no images to filter; name a part that has some")
    height, width = images.pixels.shape[-2:]
    radii = tuple(radii) or tuple(
        float(compute_radii(height, width).max()) / 2 ** (power / 2) for power in range(7, -1, -1)
    )
    labels, device = task.encode_labels(list(images.targets)), get_device(model)
    correct = torch.zeros(2 * len(radii) + 1, dtype=torch.int64, device=device)
    with inference_mode(model):
        for batch, targets in zip(batch_images(images.pixels), batch_images(labels), strict=True):
            pixels, targets = task.pixels.scale(batch.to(device)), targets.to(device)
            inputs = [pixels, *(keep(pixels, radius) for keep in (low_pass, high_pass) for radius in radii)]
            predictions = [model(task.pixels.normalise_images(x)).argmax(-1) for x in inputs]
            correct += torch.stack([(predicted == targets).sum() for predicted in predictions])
    accuracy, *filtered = (round(100 * count / len(images), 2) for count in correct.tolist())
    return ByFrequency(radii, tuple(filtered[: len(radii)]), tuple(filtered[len(radii) :]), accuracy, len(images))


def plot(runs: dict[str, ByFrequency], out: Path) -> Path:
    """Plot accuracy by radius for one or several models: low frequencies to the left, high ones to the right."""
    radii = sorted({radius for run in runs.values() for radius in run.radii})
    shades = colour.paint(np.linspace(0.4, 1, len(runs)))
    with open_figure(out, 9, 4) as figure:
        axes = figure.subplots(1, 2, sharey=True)
        for (name, run), shade in zip(runs.items(), shades, strict=True):
            hue = colour.to_hex(shade)
            for ax, values in zip(axes, (run.low, run.high), strict=True):
                ax.plot(run.radii, values, "o-", color=hue, linewidth=1.8, markersize=4, label=name)
                ax.axhline(run.accuracy, color=hue, linewidth=0.8, linestyle=":")
        for ax, title in zip(axes, ("frequencies up to the radius", "frequencies above it"), strict=True):
            ax.set(title=title, xlabel="radius, in periods over the image", xscale="log")
            ax.set_xticks(radii, [f"{radius:.3g}" for radius in radii])
            ax.minorticks_off()
            ax.grid(alpha=0.3)
            ax.spines[["top", "right"]].set_visible(False)
        axes[0].set(ylabel="accuracy, %", ylim=(0, 100))
        axes[0].legend(frameon=False, fontsize="small")
    return out
