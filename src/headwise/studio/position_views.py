"""Positions to look at: what stands at each place, and what that makes of the distance between two of them.

Everything is asked of the modules that models use. Letters: P places, C width, H heads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from headwise.blocks.attention.score_mods import AttentionLayout, ScoreMod
from headwise.blocks.positions.absolute import LearnedPositions, SinusoidalPositions, build_sinusoids
from headwise.blocks.positions.alibi import Alibi
from headwise.blocks.positions.relative import T5Bias
from headwise.blocks.positions.rotary import Rotary
from headwise.errors import UserError

Floats = NDArray[np.float64]
EQUAL = 1e-5  # of the largest score: what float32 may differ by


@dataclass(frozen=True, eq=False)
class Places:
    """A heat map, and the scores that two places have of their distance alone."""

    name: str
    formula: str
    says: str
    axes: tuple[str, str]
    symbol: str  # of a cell of the table
    table: Floats  # (rows, columns)
    unit: str  # of the scores
    scores: Floats  # (H, P, P)
    falls: bool = True  # whether it makes sense to ask if scores fall with the distance
    head: int = 0  # whose scores the table shows, where it shows them

    def curves(self) -> tuple[Floats, Floats, Floats]:
        """Mean, least and largest score at each distance j - i from 1 - P on, each (H, 2P - 1)."""
        length = self.scores.shape[-1]
        found = [np.diagonal(self.scores, by, axis1=1, axis2=2) for by in range(1 - length, length)]
        mean, low, high = (np.stack([take(each, -1) for each in found], -1) for take in (np.mean, np.min, np.max))
        return mean, low, high

    def promises(self) -> list[dict[str, Any]]:
        """What holds of it, measured on the scores."""
        mean, low, high = self.curves()
        spread, largest = float((high - low).max()), float(np.abs(self.scores).max())
        shift = spread <= EQUAL * max(largest, 1)
        told = f"At equal distances scores differ by at most {spread:.1g}"
        found = [{"name": "Shift", "kept": shift, "says": told + (", wherever they stand." if shift else ".")}]
        return [*found, _decay(mean[self.head])] if self.falls else found


def _decay(mean: Floats) -> dict[str, Any]:
    """Whether the score of a place with those before it falls with their distance."""
    past = mean[: len(mean) // 2 + 1][::-1]  # from distance 0 on
    quarter = max(1, len(past) // 4)
    always, mostly = bool((np.diff(past) < 0).all()), bool(past[-quarter:].mean() < past[:quarter].mean())
    how = "at every step" if always else "on the whole, not at every step" if mostly else "nowhere for long"
    told = f"Scores fall with the distance {how}: {past[0]:.2f} at 0, {past[-1]:.2f} at {len(past) - 1}.".replace(
        "-", "−"
    )
    return {"name": "Decay", "kept": always or mostly, "says": told}


def of_sinusoid(module: SinusoidalPositions, length: int, head: int) -> Places:
    table = build_sinusoids(torch.arange(length), module.width, module.halves)
    order = "all sines first, then the cosines" if module.halves else "sines in even columns, cosines in odd ones"
    return Places(
        "Sinusoid",
        "PE(p, 2i) = sin(p / 10000^(2i/d)),  PE(p, 2i+1) = cos(p / 10000^(2i/d))",
        "Added to the embeddings; nothing is learnt, and any length goes. A shift by k turns each pair of columns by "
        f"the same angle everywhere, so PE(p)·PE(q) depends on q − p alone. Here with {order}.",
        ("position", "column"),
        "PE",
        numbers(table),
        "PE(p)·PE(q)",
        numbers(table @ table.T)[None],
    )


def of_learned(module: LearnedPositions, length: int, head: int) -> Places:
    length = min(length, module.max_length)
    table = module.vectors(torch.arange(length), 0, length)  # (P, C)
    return Places(
        "Learned table",
        "x + table[p]",
        f"Added to the embeddings; one learnt vector for each of {module.max_length:,} positions, and none beyond. "
        "Nothing is "
        "promised: what there is of shift and decay was learnt from the data.",
        ("position", "column"),
        "table",
        numbers(table),
        "table[p]·table[q]",
        numbers(table @ table.T)[None],
    )


def of_rotary(module: Rotary, length: int, head: int) -> Places:
    pairs = len(module.rates)
    unit = torch.cat((torch.ones(pairs), torch.zeros(pairs))).expand(1, 1, length, -1)  # (1, 1, P, C)
    table = module.rotate(unit, torch.arange(length))[0, 0]
    return Places(
        "Rotary",
        "(R_p q)·(R_q k) = q·R_(q−p) k,  R_p turns channels i and i + d/2 by p / base^(2i/d)",
        "Turns queries and keys instead of adding to them, so that every score depends on the distance exactly, "
        "whatever q and k are. The table is the vector (1, 0) of each pair of channels, turned: cosines, then sines. "
        "The curve is its score with itself.",
        ("position", "channel"),
        "R q",
        numbers(table),
        "(R_p q)·(R_q q) / pairs",
        numbers(table @ table.T / pairs)[None],
    )


def of_alibi(module: Alibi, length: int, head: int) -> Places:
    return biased(
        module,
        length,
        head,
        "ALiBi",
        "score(i, j) − m_h |j − i|,  m_h = 2^(−8h/H)",
        "A straight line for each head, steep or flat; nothing is learnt. Texts longer than those of training only go "
        "further down the same line.",
    )


def of_buckets(module: T5Bias, length: int, head: int) -> Places:
    return biased(
        module,
        length,
        head,
        "T5's buckets",
        "score(i, j) + b_h[bucket(j − i)]",
        f"One learnt number for each head and each of {module.buckets} buckets of distances: near ones have buckets of "
        f"their own, far ones share by their logarithm, and from {module.max_distance} on all are one. Shift is exact; "
        "decay is there only if it was learnt.",
    )


def biased(module: ScoreMod, length: int, head: int, name: str, formula: str, says: str) -> Places:
    """A term that adds to the scores by distance."""
    at = torch.arange(length)
    scores = numbers(module.bias(AttentionLayout(length, length, at, at)))  # (H, P, P)
    if not 0 <= head < len(scores):
        raise UserError(f"head: there are {len(scores)} heads here, and no number {head + 1}; choose another")
    unit = "added to the score"
    return Places(name, formula, says, ("query i", "key j"), "bias", scores[head], unit, scores, head=head)


def bucket_numbers(length: int, head: int) -> Places:
    """Which bucket a distance falls into."""
    module = T5Bias(1)
    module.table.weight.data = torch.arange(float(module.buckets))[:, None]
    found = of_buckets(module, length, head)
    says = f"{found.says} Here bucket n has the number n, to show where they begin and end."
    return replace(found, says=says, unit="number of the bucket", falls=False)


DRAWN: dict[type[nn.Module], Callable[[Any, int, int], Places]] = {
    SinusoidalPositions: of_sinusoid,
    LearnedPositions: of_learned,
    Rotary: of_rotary,
    Alibi: of_alibi,
    T5Bias: of_buckets,
}


@torch.inference_mode()
def shipped(kind: str, length: int, width: int, heads: int, head: int) -> Places:
    """A kind of positions that needs no run."""
    kinds: dict[str, Callable[[], Places]] = {
        "sinusoid": lambda: of_sinusoid(SinusoidalPositions(width), length, head),
        "rotary": lambda: of_rotary(Rotary(width), length, head),
        "alibi": lambda: of_alibi(Alibi(heads), length, head),
        "buckets": lambda: bucket_numbers(length, head),
    }
    if kind not in kinds:
        raise UserError(f"positions: there is no '{kind}' here; choose one of {', '.join(kinds)}")
    return kinds[kind]()


@torch.inference_mode()
def of_model(model: nn.Module, which: int, length: int, head: int) -> tuple[list[str], Places]:
    """What a model has of them, and one of these drawn."""
    found: dict[str, Callable[[], Places]] = {}
    for name, module in model.named_modules():
        for known, draw in DRAWN.items():
            if isinstance(module, known):  # the layers of a stack have them alike
                label = f"{name.partition('.')[0]}: {known.__name__}"
                found.setdefault(label, partial(draw, module, length, head))
    if not found:
        raise UserError("this run's model has no positions that depend on the place alone; choose another run")
    if not 0 <= which < len(found):
        raise UserError(f"which: this run has {len(found)} kinds of positions; choose one of them")
    return list(found), list(found.values())[which]()


def numbers(values: Tensor) -> Floats:
    return values.detach().double().cpu().numpy()
