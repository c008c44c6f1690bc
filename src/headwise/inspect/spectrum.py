"""Singular value spectra of attention maps: how close they are to low rank (Wang et al. 2020, Linformer, figure 1).

The cumulative sum of the singular values of a map of n queries and n keys, largest first, divided by their total: the
faster the curve rises, the closer the map is to low rank. The paper reports it at index 128 of 512; here it is at
n / 4, and texts of different lengths are compared by index / n.

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
from headwise.inspect.files import check_ending, open_figure
from headwise.text import EOS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Ids = Sequence[int] | NDArray[np.integer]
READ_AT = 0.25
RELATIVE_INDICES = np.linspace(0, 1, 65)  # index / n
CONTEXT, SPECIAL_TOKENS = 512, 2  # default context of tasks that have none; special tokens before and after a text


@dataclass(frozen=True, eq=False)
class Spectrum:
    """`curves` (L, H, P): cumulative share of the singular values, at the relative indices RELATIVE_INDICES."""

    curves: NDArray[np.floating]
    texts: int
    tokens: int  # in all texts

    @property
    def at_quarter(self) -> NDArray[np.floating]:
        """The curves at n / 4, (L, H): 0.25 for equal singular values, 1 for a map of rank n / 4."""
        return self.curves[..., np.searchsorted(RELATIVE_INDICES, READ_AT)]

    def to_json(self) -> dict[str, Any]:
        return {
            "texts": self.texts,
            "tokens": self.tokens,
            "at": READ_AT,
            "read": self.at_quarter.round(4).tolist(),
            "places": RELATIVE_INDICES.round(4).tolist(),
            "curves": self.curves.round(4).tolist(),
        }


def compute_spectrum(loaded: TrainedModel, text: str = "", most: int = 16) -> Spectrum:
    """Compute the mean spectrum of each encoder head over segments of `text`, or over the longest `most` segments of
    the held-out texts. For mixers that approximate softmax attention, the exact map is decomposed."""
    if not hasattr(loaded.model, "encoder"):
        raise UserError("--spectrum: looks at encoders, and this run has none; name a masked language model's run")
    texts = [loaded.tokenisers.source.encode(text)] if text else _encode_held_out(loaded)
    segments = _split_texts(texts, getattr(loaded.task.config, "context", CONTEXT) - SPECIAL_TOKENS)[:most]
    if not segments:
        raise UserError("there is no text to look at; give one")
    curves = [_compute_curves(loaded.model, segment) for segment in segments]
    return Spectrum(np.mean(curves, axis=0), len(segments), sum(map(len, segments)))


def _encode_held_out(loaded: TrainedModel) -> list[Ids]:
    """Encode the encoder's side of the held-out pairs."""
    side = 1 if loaded.task.config.unpaired else 0
    return [pair[side] for pair in Examples.from_rows(tokenise(loaded.held_out(), loaded.tokenisers))]


def _split_texts(texts: Iterable[Ids], longest: int) -> list[Ids]:
    """Split texts into segments, the longest first."""
    segments = [text[start : start + longest] for text in texts for start in range(0, len(text), longest)]
    return sorted(segments, key=len, reverse=True)


@torch.inference_mode()
def _compute_curves(model: Any, ids: Ids) -> NDArray[np.floating]:
    """Compute the spectra of one text, (L, H, P)."""
    with record() as maps:
        model.encoder(torch.tensor([[*map(int, ids), EOS]], device=get_device(model)), Context())
    if not maps.exact:
        raise UserError("this run's model has no attention to look at; inspect another run")
    exact = [weights[-1][0] for weights in maps.exact.values()]  # L x (H, n, n)
    values = torch.linalg.svdvals(torch.stack(exact).float())  # (L, H, n)
    sums = values.cumsum(-1).div(values.sum(-1, keepdim=True)).cpu().numpy()
    return np.apply_along_axis(_resample, -1, sums)  # (L, H, n) -> (L, H, P)


def _resample(sums: NDArray[np.floating]) -> NDArray[np.floating]:
    """Interpolate at RELATIVE_INDICES: (n,) -> (P,)."""
    return np.interp(RELATIVE_INDICES, np.arange(len(sums) + 1) / len(sums), [0.0, *sums])


def plot(spectrum: Spectrum, out: Path | str, name: str = "") -> Path:
    """Plot the curves of all heads, and a heat map of their values at n / 4, as .svg or .png."""
    out = Path(out)
    check_ending(out, ".svg", ".png")
    with open_figure(out, 7 + min(6, max(3, 0.5 * spectrum.at_quarter.shape[1])), 4.5) as figure:
        curves, heat_map = figure.subplots(1, 2, width_ratios=(1.2, 1))
        _draw_curves(curves, spectrum.curves)
        _draw_heat_map(heat_map, spectrum.at_quarter)
        figure.suptitle(f"Spectra of attention{': ' if name else ''}{name}")
    return out


def _draw_curves(axes: Axes, curves: NDArray[np.floating]) -> None:
    """Draw thin lines for heads and thick lines for the means of layers, darker in higher layers."""
    shades = colour.paint(np.linspace(0.35, 1, len(curves)))
    for number, (layer, shade) in enumerate(zip(curves, shades, strict=True), 1):
        hue = colour.to_hex(shade)
        axes.plot(RELATIVE_INDICES, layer.T, color=hue, linewidth=0.6, alpha=0.45)
        axes.plot(RELATIVE_INDICES, layer.mean(0), color=hue, linewidth=2, label=f"layer {number}")
    axes.plot((0, 1), (0, 1), ":", color=colour.SOFT, linewidth=1, label="equal values")
    axes.axvline(READ_AT, color=colour.WARM, linewidth=1, linestyle="--")
    axes.set(xlabel="index / n of singular values, largest first", ylabel="share of their sum")
    axes.set(xlim=(0, 1), ylim=(0, 1.01))
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize="small", loc="lower right")


def _draw_heat_map(axes: Axes, read: NDArray[np.floating]) -> None:
    layers, heads = read.shape
    low, high = float(np.floor(read.min() * 20) / 20), float(np.ceil(read.max() * 20) / 20)
    pixels = colour.paint(read, low, high)
    axes.imshow(pixels, aspect="auto")
    for layer, head in np.ndindex(read.shape):
        ink = colour.pick_text_colour(pixels[layer, head])
        axes.text(head, layer, f"{100 * read[layer, head]:.1f}", color=ink, ha="center", va="center", fontsize="small")
    axes.set(title="at n / 4, in %", xlabel="head", ylabel="layer")
    axes.set_xticks(range(heads), [str(number) for number in range(1, heads + 1)])
    axes.set_yticks(range(layers), [str(number) for number in range(1, layers + 1)])
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
