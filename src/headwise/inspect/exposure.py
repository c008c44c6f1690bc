"""Exposure bias made visible: a decoder's errors by position, with the right tokens before it or its own.

In training a decoder reads gold tokens; in use it reads what it wrote. Up to the first error both are the same, so
what lies between the curves is what errors bring about (Bengio et al. 2015; Ranzato et al. 2016).

Letters: B sources, T positions of their references, the end mark included.
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
from headwise.data.corpora import references
from headwise.data.read import Pair
from headwise.decode.config import GREEDY
from headwise.decode.driver import batches
from headwise.decode.generator import Generator, Request
from headwise.errors import UserError
from headwise.evaluate.bootstrap import bootstrap_interval
from headwise.inference.trained_model import TrainedModel
from headwise.inspect import colour
from headwise.inspect.files import check_ending, figure
from headwise.text import BOS, EOS, PAD


@dataclass(frozen=True)
class Curve:
    """A share of the references by position, with 95 % intervals (bootstrap over the references)."""

    values: np.ndarray  # (T,)
    low: np.ndarray
    high: np.ndarray

    def to_json(self) -> dict[str, list[float]]:
        return {name: np.round(getattr(self, name), 6).tolist() for name in ("values", "low", "high")}


@dataclass(frozen=True)
class Exposure:
    """Errors by position, from 1; `counts` references reach each.

    `forced`: the token is wrong after the right ones. `free`: it is wrong after the model's own. `broken`: its own
    output has had an error by then.
    """

    positions: np.ndarray  # (T,)
    counts: np.ndarray  # (T,)
    forced: Curve
    free: Curve
    broken: Curve
    totals: Mapping[str, float]  # the same shares over the tokens of all these positions

    def to_json(self) -> dict[str, Any]:
        curves = {name: getattr(self, name).to_json() for name in ("forced", "free", "broken")}
        numbers = {"positions": self.positions.tolist(), "counts": self.counts.tolist()}
        return {**numbers, **curves, "totals": dict(self.totals)}


def exposure(
    loaded: TrainedModel, pairs: Sequence[Pair] = (), most: int = 2000, least: int = 20, resamples: int = 500
) -> Exposure:
    """Follow up to `most` sources (of the test part where no pairs are given) to the end of their first references.
    Positions that fewer than `least` references reach are left out."""
    loaded.check_task("transduce")
    if not hasattr(loaded.model, "step"):
        raise UserError("exposure: a deployment engine cannot be given the right tokens; name a run")
    listed = list(references(pairs or loaded.held_out()).items())[:most]
    if not listed:
        raise UserError("exposure: there are no pairs to follow")
    sources = loaded.tokenisers.source.encode_batch([source for source, _ in listed])
    targets = loaded.tokenisers.target.encode_batch([several[0] for _, several in listed])
    gold, forced, free = follow(loaded.model, sources, targets)
    return measure(gold, forced, free, min(least, len(listed)), resamples)


@torch.inference_mode()
def follow(
    model: Generator, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """References and what the model writes at their positions, after gold and after its own tokens, each (B, T)."""
    device = get_device(model)
    gold = np.full((len(sources), 1 + max(map(len, targets))), PAD)
    forced, free = np.full_like(gold, PAD), np.full_like(gold, PAD)
    for numbers in batches([len(source) + 1 for source in sources], GREEDY.tokens_per_batch):
        request = Request([sources[number] for number in numbers], GREEDY, device)
        rows = [torch.tensor([*targets[number], EOS]) for number in numbers]
        right = pad_sequence(rows, batch_first=True, padding_value=PAD).to(device)
        with eval_mode(model):
            found = (right, written(model, request, right, forced=True), written(model, request, right, forced=False))
        for array, tokens in zip((gold, forced, free), found, strict=True):
            array[numbers, : right.shape[1]] = tokens.cpu().numpy()
    return gold, forced, free


def written(model: Generator, request: Request, gold: Tensor, forced: bool) -> Tensor:
    """The best tokens at the positions of `gold` (B, T), one step after the other. The next step reads the gold token
    or the one just written; what follows an end mark of its own is nothing, which is never right."""
    state = model.start(request.opening(model))
    tokens = request.first(model)
    never = torch.tensor(sorted({PAD, BOS, model.start_id} - {model.end_id}), device=gold.device)
    steps = []
    for right in gold.unbind(1):
        logits, state = model.step(tokens, state)
        best = logits.index_fill(1, never, -torch.inf).argmax(1)
        steps.append(best)
        tokens = right if forced else best
    found = torch.stack(steps, dim=1)  # T x (B,) -> (B, T)
    if forced:
        return found
    over = (found == model.end_id).cumsum(1) - (found == model.end_id).long() > 0
    return found.masked_fill(over, PAD)


def measure(gold: np.ndarray, forced: np.ndarray, free: np.ndarray, least: int, resamples: int) -> Exposure:
    """Shares of wrong tokens by position, from tokens (B, T); a reference counts up to its end mark."""
    real = gold != PAD
    counts = real.sum(0)
    shown = slice(0, int((counts >= least).sum()))  # fewer and fewer references reach a position
    wrong = {"forced": forced != gold, "free": free != gold}
    wrong["broken"] = np.logical_or.accumulate(wrong["free"], axis=1)
    curves = {name: _curve(each[:, shown] & real[:, shown], real[:, shown], resamples) for name, each in wrong.items()}
    tokens = int(counts[shown].sum())
    totals = {name: float((each & real)[:, shown].sum() / tokens) for name, each in wrong.items()}
    return Exposure(1 + np.arange(len(counts))[shown], counts[shown], **curves, totals=totals)


def _curve(wrong: np.ndarray, real: np.ndarray, resamples: int) -> Curve:
    columns = [np.column_stack(both) for both in zip(wrong.T, real.T, strict=True)]
    values = [_share(column.sum(0, keepdims=True))[0] for column in columns]
    bands = [bootstrap_interval(column, _share, resamples) for column in columns]
    return Curve(np.array(values), *np.array(bands).T)


def _share(sums: np.ndarray) -> np.ndarray:
    return sums[:, 0] / np.maximum(sums[:, 1], 1)


CURVES = (
    ("broken", "its output has had an error by then", colour.SOFT, ":"),
    ("free", "wrong after its own tokens", colour.WARM, "-"),
    ("forced", "wrong after the right tokens", "#3578b9", "-"),
)


def plot(found: Exposure, out: Path | str, name: str = "") -> Path:
    """Draw the curves with their bands, and below how many references reach each position; .svg or .png."""
    from matplotlib.ticker import MaxNLocator

    out = Path(out)
    check_ending(out, ".svg", ".png")
    with figure(out, 8, 5) as drawn:
        errors, counts = drawn.subplots(2, sharex=True, height_ratios=(5, 1))
        for key, label, hue, style in CURVES:
            curve: Curve = getattr(found, key)
            errors.fill_between(found.positions, 100 * curve.low, 100 * curve.high, color=hue, alpha=0.16, linewidth=0)
            errors.plot(found.positions, 100 * curve.values, style, color=hue, marker=".", label=label)
        errors.set(ylabel="references, %", ylim=(0, None), title=f"Errors by position{': ' if name else ''}{name}")
        errors.legend(frameon=False)
        errors.grid(alpha=0.3)
        counts.bar(found.positions, found.counts, color=colour.FAINT)
        counts.set(xlabel="position in the output", ylabel="references", xlim=(0.4, len(found.positions) + 0.6))
        counts.xaxis.set_major_locator(MaxNLocator(integer=True))
        for axes in (errors, counts):
            axes.spines[["top", "right"]].set_visible(False)
    return out
