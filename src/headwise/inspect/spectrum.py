"""How much of its attention a model could do with fewer keys: the spectra of its maps (Wang et al. 2020, figure 1).

The singular values of a map P of n queries and n keys, largest first, summed up and divided by their sum: a curve that
rises fast belongs to a map that is nearly one of low rank. The paper reads it at index 128 of 512; here at n / 4, and
texts of different lengths are laid over each other by index / n.

Letters: L layers, H heads, n tokens, P points of a curve.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from headwise.blocks.evaluation import get_device
from headwise.blocks.record import record
from headwise.blocks.stream import Context
from headwise.data.examples import Examples, tokenise
from headwise.errors import UserError
from headwise.inference.trained_model import TrainedModel
from headwise.inspect import colour
from headwise.inspect.files import check_ending, figure
from headwise.text import EOS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Ids = Sequence[int] | NDArray[np.integer]
READ_AT = 0.25
PLACES = np.linspace(0, 1, 65)  # index / n
CONTEXT, MARKS = 512, 2  # tokens of a text where the task does not say; one before it and one behind


@dataclass(frozen=True, eq=False)
class Spectrum:
    """`curves` (L, H, P): which share of the sum of singular values the largest have, by their share in number."""

    curves: NDArray[np.floating]
    texts: int
    tokens: int  # in all texts

    @property
    def read(self) -> NDArray[np.floating]:
        """The curves at n / 4, (L, H): 0.25 for equal singular values, 1 for a map of rank n / 4."""
        return self.curves[..., np.searchsorted(PLACES, READ_AT)]

    def to_json(self) -> dict[str, Any]:
        return {
            "texts": self.texts,
            "tokens": self.tokens,
            "at": READ_AT,
            "read": self.read.round(4).tolist(),
            "places": PLACES.round(4).tolist(),
            "curves": self.curves.round(4).tolist(),
        }


def spectrum(loaded: TrainedModel, text: str = "", most: int = 16) -> Spectrum:
    """The mean spectrum of each head of a run's encoder over pieces of `text`, or of its held-out texts: the longest
    `most` of at most the context of training. Of a mixer that only approximates the softmax, what it approximates."""
    if not hasattr(loaded.model, "encoder"):
        raise UserError("--spectrum: looks at encoders, and this run has none; name a masked language model's run")
    texts = [loaded.tokenisers.source.encode(text)] if text else _held_out(loaded)
    pieces = _pieces(texts, getattr(loaded.task.config, "context", CONTEXT) - MARKS)[:most]
    if not pieces:
        raise UserError("there is no text to look at; give one")
    curves = [_curves(loaded.model, piece) for piece in pieces]
    return Spectrum(np.mean(curves, axis=0), len(pieces), sum(map(len, pieces)))


def _held_out(loaded: TrainedModel) -> list[Ids]:
    """What the encoder reads of the held-out pairs."""
    side = 1 if loaded.task.config.unpaired else 0
    return [pair[side] for pair in Examples.from_rows(tokenise(loaded.held_out(), loaded.tokenisers))]


def _pieces(texts: Iterable[Ids], longest: int) -> list[Ids]:
    """The texts cut into pieces, the longest first."""
    cut = [text[start : start + longest] for text in texts for start in range(0, len(text), longest)]
    return sorted(cut, key=len, reverse=True)


@torch.inference_mode()
def _curves(model: Any, ids: Ids) -> NDArray[np.floating]:
    """One text's spectra, (L, H, P)."""
    with record() as maps:
        model.encoder(torch.tensor([[*map(int, ids), EOS]], device=get_device(model)), Context())
    if not maps.exact:
        raise UserError("this run's model has no attention to look at; inspect another run")
    exact = [found[-1][0] for found in maps.exact.values()]  # L x (H, n, n)
    values = torch.linalg.svdvals(torch.stack(exact).float())  # (L, H, n)
    sums = values.cumsum(-1).div(values.sum(-1, keepdim=True)).cpu().numpy()
    return np.apply_along_axis(_at_places, -1, sums)  # (L, H, n) -> (L, H, P)


def _at_places(sums: NDArray[np.floating]) -> NDArray[np.floating]:
    """(n,) -> (P,)"""
    return np.interp(PLACES, np.arange(len(sums) + 1) / len(sums), [0.0, *sums])


def plot(found: Spectrum, out: Path | str, name: str = "") -> Path:
    """Curves of every head, and a heat map of what they are at n / 4; .svg or .png."""
    out = Path(out)
    check_ending(out, ".svg", ".png")
    with figure(out, 7 + min(6, max(3, 0.5 * found.read.shape[1])), 4.5) as drawn:
        curves, read = drawn.subplots(1, 2, width_ratios=(1.2, 1))
        _draw_curves(curves, found.curves)
        _draw_heat(read, found.read)
        drawn.suptitle(f"Spectra of attention{': ' if name else ''}{name}")
    return out


def _draw_curves(axes: Axes, curves: NDArray[np.floating]) -> None:
    """Thin lines for heads, thick ones for the means of layers, which grow darker upwards."""
    shades = colour.paint(np.linspace(0.35, 1, len(curves)))
    for number, (layer, shade) in enumerate(zip(curves, shades, strict=True), 1):
        hue = colour.name(shade)
        axes.plot(PLACES, layer.T, color=hue, linewidth=0.6, alpha=0.45)
        axes.plot(PLACES, layer.mean(0), color=hue, linewidth=2, label=f"layer {number}")
    axes.plot((0, 1), (0, 1), ":", color=colour.SOFT, linewidth=1, label="equal values")
    axes.axvline(READ_AT, color=colour.WARM, linewidth=1, linestyle="--")
    axes.set(xlabel="index / n of singular values, largest first", ylabel="share of their sum")
    axes.set(xlim=(0, 1), ylim=(0, 1.01))
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize="small", loc="lower right")


def _draw_heat(axes: Axes, read: NDArray[np.floating]) -> None:
    layers, heads = read.shape
    low, high = float(np.floor(read.min() * 20) / 20), float(np.ceil(read.max() * 20) / 20)
    pixels = colour.paint(read, low, high)
    axes.imshow(pixels, aspect="auto")
    for layer, head in np.ndindex(read.shape):
        ink = colour.ink_on(pixels[layer, head])
        axes.text(head, layer, f"{100 * read[layer, head]:.1f}", color=ink, ha="center", va="center", fontsize="small")
    axes.set(title="at n / 4, in %", xlabel="head", ylabel="layer")
    axes.set_xticks(range(heads), [str(number) for number in range(1, heads + 1)])
    axes.set_yticks(range(layers), [str(number) for number in range(1, layers + 1)])
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
