"""Length extrapolation: a language model's loss by position, beyond the context that it was trained on (Press et al.
2022, "Train Short, Test Long")."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from headwise.blocks.evaluation import get_device, inference_mode
from headwise.data.blocks import Blocks
from headwise.data.examples import Examples
from headwise.errors import UserError
from headwise.evaluate.bootstrap import bootstrap_interval
from headwise.inference.trained_model import TrainedModel
from headwise.tasks.language_model import score_tokens

BINS_PER_CONTEXT = 4  # bins in each training context


@dataclass(frozen=True)
class PositionBin:
    """Mean loss in nats per token at positions `low` ... `high` - 1 of a text."""

    low: int
    high: int
    nll: float
    interval: tuple[float, float]
    tokens: int

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


def extrapolate(loaded: TrainedModel, examples: Examples, times: int = 4, most: int = 400_000) -> list[PositionBin]:
    """Measure the loss at positions up to `times` the training context, or up to the model's maximum length.

    Texts are cut into windows that do not overlap: each position has its full context, and all bins are measured on the
    same texts. At most `most` tokens are read.
    """
    context = loaded.check_task("language-model").config.context
    length = context * times
    blocks = Blocks(examples, length)
    starts, _ = blocks.cut_windows(length)
    starts = starts[: max(1, most // length)]
    by_window, device = [], get_device(loaded.model)
    rows = max(1, 2**24 // (loaded.tokenisers.target.size * length))
    max_length = _get_max_length(loaded, length)
    with inference_mode(loaded.model):
        for first in range(0, len(starts), rows):
            batch = blocks.batch(starts[first : first + rows]).to(device)
            ids, labels = batch.ids[:, :max_length], batch.labels[:, :max_length]
            nll = score_tokens(loaded.model, type(batch)(ids, labels))  # (B, T)
            real = (labels != 0).to(nll.dtype)
            by_window.append(np.stack([_pad_positions(nll, length), _pad_positions(real, length)], axis=-1))
    sums = np.concatenate(by_window)  # (windows, length, 2)
    return [bin_ for bin_ in _average_losses(sums, context // BINS_PER_CONTEXT or 1) if bin_.tokens]


def _get_max_length(loaded: TrainedModel, length: int) -> int:
    """The number of tokens that the model can read at once, which learned position embeddings limit."""
    limit = getattr(getattr(loaded.experiment.model, "positions", None), "max_length", length)
    return min(length, limit)


def _pad_positions(values: Any, length: int) -> np.ndarray:
    padded = np.zeros((len(values), length))
    padded[:, : values.shape[1]] = values.cpu().numpy()
    return padded


def _average_losses(sums: np.ndarray, width: int) -> list[PositionBin]:
    bins = []
    for low in range(0, sums.shape[1], width):
        rows = sums[:, low : low + width].sum(1)  # (windows, 2)
        rows = rows[rows[:, 1] > 0]
        if len(rows):
            total = rows.sum(0)
            bounds = bootstrap_interval(rows, lambda drawn: drawn[:, 0] / drawn[:, 1])
            bins.append(PositionBin(low, low + width, float(total[0] / total[1]), bounds, int(total[1])))
    return bins


def plot(runs: Mapping[str, Sequence[PositionBin]], context: int, out: Path | str) -> Path:
    """Plot one curve per run, with a line at the training context, as .png or .svg."""

    from headwise.inspect.files import check_ending, open_figure

    out = Path(out)
    check_ending(out, ".svg", ".png")
    if not any(runs.values()):
        raise UserError(f"{out}: there is no text to measure on; name a longer one")
    with open_figure(out) as figure:
        axes = figure.subplots()
        for name, bins in runs.items():
            middles = [(bin_.low + bin_.high) / 2 for bin_ in bins]
            (line,) = axes.plot(middles, [bin_.nll for bin_ in bins], marker="o", markersize=3, label=name)
            low, high = zip(*(bin_.interval for bin_ in bins), strict=True)
            axes.fill_between(middles, low, high, color=line.get_color(), alpha=0.12, linewidth=0)
        axes.axvline(context, color="grey", linewidth=1, linestyle="--")
        axes.annotate(
            "trained up to here", (context, 1), xycoords=("data", "axes fraction"), va="top", fontsize="small"
        )
        axes.set(xlabel="position in the text, in tokens", ylabel="loss, in nats a token")
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(fontsize="small", frameon=False)
    return out
