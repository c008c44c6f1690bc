"""How a language model fares beyond the lengths that it was trained on: its loss at each position, further and further
out (Press et al. 2022, "Train Short, Test Long")."""

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

STEPS = 4  # bins to each length of training


@dataclass(frozen=True)
class Span:
    """The mean loss, in nats a token, of the tokens at positions `low` ... `high` - 1 of a text."""

    low: int
    high: int
    nll: float
    interval: tuple[float, float]
    tokens: int

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


def extrapolate(loaded: TrainedModel, examples: Examples, times: int = 4, most: int = 400_000) -> list[Span]:
    """The loss over positions up to `times` the context of training; a model that cannot go on ends early.

    Texts are cut into windows that do not overlap, so each position is read after all of those before it, and every
    bin is measured on like texts. At most `most` tokens are read.
    """
    context = loaded.check_task("language-model").config.context
    length = context * times
    blocks = Blocks(examples, length)
    starts, _ = blocks.windows(length)
    starts = starts[: max(1, most // length)]
    by_window, device = [], get_device(loaded.model)
    rows = max(1, 2**24 // (loaded.tokenisers.target.size * length))
    reach = _reach(loaded, length)
    with inference_mode(loaded.model):
        for first in range(0, len(starts), rows):
            batch = blocks.batch(starts[first : first + rows]).to(device)
            nll = score_tokens(loaded.model, type(batch)(batch.ids[:, :reach], batch.labels[:, :reach]))  # (B, T)
            real = (batch.labels[:, :reach] != 0).to(nll.dtype)
            by_window.append(np.stack([_padded(nll, length), _padded(real, length)], axis=-1))
    sums = np.concatenate(by_window)  # (windows, length, 2)
    return [span for span in _spans(sums, context // STEPS or 1) if span.tokens]


def _reach(loaded: TrainedModel, length: int) -> int:
    """How many tokens the model can read at once: a learned table of positions ends."""
    limit = getattr(getattr(loaded.experiment.model, "positions", None), "max_length", length)
    return min(length, limit)


def _padded(values: Any, length: int) -> np.ndarray:
    found = np.zeros((len(values), length))
    found[:, : values.shape[1]] = values.cpu().numpy()
    return found


def _spans(sums: np.ndarray, width: int) -> list[Span]:
    spans = []
    for low in range(0, sums.shape[1], width):
        rows = sums[:, low : low + width].sum(1)  # (windows, 2)
        rows = rows[rows[:, 1] > 0]
        if len(rows):
            total = rows.sum(0)
            bounds = bootstrap_interval(rows, lambda drawn: drawn[:, 0] / drawn[:, 1])
            spans.append(Span(low, low + width, float(total[0] / total[1]), bounds, int(total[1])))
    return spans


def plot(runs: Mapping[str, Sequence[Span]], context: int, out: Path | str) -> Path:
    """One curve a run; where training ended is a line. The ending of `out` decides the format: .png or .svg."""

    from headwise.inspect.files import check_ending, figure

    out = Path(out)
    check_ending(out, ".svg", ".png")
    if not any(runs.values()):
        raise UserError(f"{out}: there is no text to measure on; name a longer one")
    with figure(out) as drawn:
        axes = drawn.subplots()
        for name, spans in runs.items():
            middle = [(span.low + span.high) / 2 for span in spans]
            (line,) = axes.plot(middle, [span.nll for span in spans], marker="o", markersize=3, label=name)
            low, high = zip(*(span.interval for span in spans), strict=True)
            axes.fill_between(middle, low, high, color=line.get_color(), alpha=0.12, linewidth=0)
        axes.axvline(context, color="grey", linewidth=1, linestyle="--")
        axes.annotate(
            "trained up to here", (context, 1), xycoords=("data", "axes fraction"), va="top", fontsize="small"
        )
        axes.set(xlabel="position in the text, in tokens", ylabel="loss, in nats a token")
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(fontsize="small", frameon=False)
    return out
