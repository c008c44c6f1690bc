"""Exposure bias: a decoder's errors by position, with teacher forcing and in free running.

In training a decoder reads the reference (teacher forcing); in inference it reads its own output. Both are equal up to
the first error, so the difference of the curves is the effect of earlier errors (Bengio et al. 2015; Ranzato et al.
2016).

Letters: B sources, T positions of their references, including the end token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from headwise.blocks.evaluation import eval_mode, get_device
from headwise.data.corpora import collect_references
from headwise.data.read import Pair
from headwise.decode.config import GREEDY
from headwise.decode.driver import batch_by_length
from headwise.decode.generator import Generator, Request
from headwise.errors import UserError
from headwise.evaluate.bootstrap import bootstrap_interval
from headwise.inference.trained_model import TrainedModel
from headwise.inspect import colour
from headwise.inspect.files import check_ending, open_figure
from headwise.text import BOS, EOS, PAD


@dataclass(frozen=True)
class Curve:
    """Share of the references by position, with 95 % bootstrap intervals over the references."""

    values: np.ndarray  # (T,)
    low: np.ndarray
    high: np.ndarray

    def to_json(self) -> dict[str, list[float]]:
        return {name: np.round(getattr(self, name), 6).tolist() for name in ("values", "low", "high")}


@dataclass(frozen=True)
class Exposure:
    """Exposure bias: error rates by position, counted from 1; `counts` is the number of references that long.

    `forced`: the token is wrong after the reference's tokens (teacher forcing). `free`: it is wrong after the model's
    own tokens. `broken`: the model's output has an error at this position or before.
    """

    positions: np.ndarray  # (T,)
    counts: np.ndarray  # (T,)
    forced: Curve
    free: Curve
    broken: Curve
    totals: Mapping[str, float]  # the error rates over the tokens of all these positions

    def to_json(self) -> dict[str, Any]:
        curves = {name: getattr(self, name).to_json() for name in ("forced", "free", "broken")}
        numbers = {"positions": self.positions.tolist(), "counts": self.counts.tolist()}
        return {**numbers, **curves, "totals": dict(self.totals)}


def measure_exposure(
    loaded: TrainedModel, pairs: Sequence[Pair] = (), most: int = 2000, least: int = 20, resamples: int = 500
) -> Exposure:
    """Measure exposure bias on the first references of up to `most` sources, by default of the test set. Positions that
    fewer than `least` references reach are left out."""
    loaded.check_task("transduce")
    if not hasattr(loaded.model, "step"):
        raise UserError("exposure: a deployment engine has no teacher forcing; name a run")
    examples = list(collect_references(pairs or loaded.held_out()).items())[:most]
    if not examples:
        raise UserError("exposure: there are no pairs to decode; name a file that has some")
    sources = loaded.tokenisers.source.encode_batch([source for source, _ in examples])
    targets = loaded.tokenisers.target.encode_batch([targets[0] for _, targets in examples])
    gold, forced, free = predict_tokens(loaded.model, sources, targets)
    return compute_error_rates(gold, forced, free, min(least, len(examples)), resamples)


@torch.inference_mode()
def predict_tokens(
    model: Generator, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Predict the tokens at the positions of the references: (references, with teacher forcing, in free running), each
    (B, T)."""
    device = get_device(model)
    gold = np.full((len(sources), 1 + max(map(len, targets))), PAD)
    forced, free = np.full_like(gold, PAD), np.full_like(gold, PAD)
    for numbers in batch_by_length([len(source) + 1 for source in sources], GREEDY.tokens_per_batch):
        request = Request([sources[number] for number in numbers], GREEDY, device)
        rows = [torch.tensor([*targets[number], EOS]) for number in numbers]
        reference = pad_sequence(rows, batch_first=True, padding_value=PAD).to(device)
        with eval_mode(model):
            outputs = [decode_tokens(model, request, reference, forced) for forced in (True, False)]
        for array, tokens in zip((gold, forced, free), (reference, *outputs), strict=True):
            array[numbers, : reference.shape[1]] = tokens.cpu().numpy()
    return gold, forced, free


def decode_tokens(model: Generator, request: Request, gold: Tensor, forced: bool) -> Tensor:
    """Decode greedily at the positions of `gold` (B, T). Each step reads the gold token (teacher forcing) or the
    predicted one; tokens after a predicted end are PAD, which counts as wrong."""
    state = model.start(request.build_inputs(model))
    tokens = request.build_first_tokens(model)
    forbidden = torch.tensor(sorted({PAD, BOS, model.start_id} - {model.end_id}), device=gold.device)
    steps = []
    for reference in gold.unbind(1):
        logits, state = model.step(tokens, state)
        best = logits.index_fill(1, forbidden, -torch.inf).argmax(1)
        steps.append(best)
        tokens = reference if forced else best
    outputs = torch.stack(steps, dim=1)  # T x (B,) -> (B, T)
    if forced:
        return outputs
    ends = (outputs == model.end_id).long()
    return outputs.masked_fill(ends.cumsum(1) - ends > 0, PAD)


def compute_error_rates(gold: np.ndarray, forced: np.ndarray, free: np.ndarray, least: int, resamples: int) -> Exposure:
    """Compute error rates by position from tokens (B, T); a reference counts up to its end token."""
    real = gold != PAD
    counts = real.sum(0)
    shown = slice(0, int((counts >= least).sum()))  # counts decrease with the position
    wrong = {"forced": forced != gold, "free": free != gold}
    wrong["broken"] = np.logical_or.accumulate(wrong["free"], axis=1)
    curves = {
        name: _compute_curve(errors[:, shown] & real[:, shown], real[:, shown], resamples)
        for name, errors in wrong.items()
    }
    tokens = int(counts[shown].sum())
    totals = {name: float((errors & real)[:, shown].sum() / tokens) for name, errors in wrong.items()}
    return Exposure(1 + np.arange(len(counts))[shown], counts[shown], **curves, totals=totals)


def _compute_curve(wrong: np.ndarray, real: np.ndarray, resamples: int) -> Curve:
    columns = [np.column_stack(both) for both in zip(wrong.T, real.T, strict=True)]
    values = [_divide_sums(column.sum(0, keepdims=True))[0] for column in columns]
    bands = [bootstrap_interval(column, _divide_sums, resamples) for column in columns]
    return Curve(np.array(values), *np.array(bands).T)


def _divide_sums(sums: np.ndarray) -> np.ndarray:
    return sums[:, 0] / np.maximum(sums[:, 1], 1)


CURVES = (
    ("broken", "its output has had an error by then", colour.SOFT, ":"),
    ("free", "wrong after its own tokens", colour.WARM, "-"),
    ("forced", "wrong after the right tokens", "#3578b9", "-"),
)


def plot(exposure: Exposure, out: Path | str, name: str = "") -> Path:
    """Plot the error rates with their intervals, and below the number of references by position, as .svg or .png."""
    from matplotlib.ticker import MaxNLocator

    out = Path(out)
    check_ending(out, ".svg", ".png")
    with open_figure(out, 8, 5) as figure:
        errors, counts = figure.subplots(2, sharex=True, height_ratios=(5, 1))
        for key, label, hue, style in CURVES:
            curve: Curve = getattr(exposure, key)
            values, low, high = (100 * shares for shares in (curve.values, curve.low, curve.high))
            errors.fill_between(exposure.positions, low, high, color=hue, alpha=0.16, linewidth=0)
            errors.plot(exposure.positions, values, style, color=hue, marker=".", label=label)
        errors.set(ylabel="references, %", ylim=(0, None), title=f"Errors by position{': ' if name else ''}{name}")
        errors.legend(frameon=False)
        errors.grid(alpha=0.3)
        counts.bar(exposure.positions, exposure.counts, color=colour.FAINT)
        counts.set(xlabel="position in the output", ylabel="references", xlim=(0.4, len(exposure.positions) + 0.6))
        counts.xaxis.set_major_locator(MaxNLocator(integer=True))
        for axes in (errors, counts):
            axes.spines[["top", "right"]].set_visible(False)
    return out
