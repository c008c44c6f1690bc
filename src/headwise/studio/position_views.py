"""Views of position encodings: their table, and the attention score as a function of the distance.

All values come from the modules that models use. Letters: P positions, C width, H heads.
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

from headwise.blocks.attention.score_mods import AttentionLayout, Causal, Padding, ScoreMod, Segments, Window
from headwise.blocks.positions.absolute import LearnedPositions, SinusoidalPositions, build_sinusoids
from headwise.blocks.positions.alibi import Alibi
from headwise.blocks.positions.relative import T5Bias
from headwise.blocks.positions.rotary import Rotary
from headwise.errors import UserError
from headwise.studio.binary_response import BinaryResponse

Floats = NDArray[np.float64]
TOLERANCE = 1e-5  # relative to the largest score: rounding of float32


@dataclass(frozen=True, eq=False)
class PositionView:
    """A position encoding as a heat map, and the scores that positions alone give to each pair."""

    name: str
    formula: str
    description: str
    axes: tuple[str, str]
    symbol: str  # what a cell of the table is called
    table: Floats  # (rows, columns)
    unit: str  # of the scores
    scores: Floats  # (H, P, P)
    check_decay: bool = True  # whether to check if scores fall with the distance
    head: int = 0  # the head that the table shows, if it shows scores

    def score_by_distance(self) -> tuple[Floats, Floats, Floats]:
        """Mean, smallest and largest score at each distance j - i from 1 - P to P - 1, each (H, 2P - 1)."""
        length = self.scores.shape[-1]
        diagonals = [np.diagonal(self.scores, offset, axis1=1, axis2=2) for offset in range(1 - length, length)]
        mean, low, high = (
            np.stack([reduce(diagonal, -1) for diagonal in diagonals], -1) for reduce in (np.mean, np.min, np.max)
        )
        return mean, low, high

    def check_properties(self) -> list[dict[str, Any]]:
        """Shift invariance and decay, measured on the scores."""
        mean, low, high = self.score_by_distance()
        spread, largest = float((high - low).max()), float(np.abs(self.scores).max())
        is_shift_invariant = spread <= TOLERANCE * max(largest, 1)
        sentence = f"At equal distances the scores differ by at most {spread:.1g}"
        properties = [{"name": "Shift invariance", "holds": is_shift_invariant, "description": f"{sentence}."}]
        return [*properties, _check_decay(mean[self.head])] if self.check_decay else properties


def _check_decay(mean: Floats) -> dict[str, Any]:
    """Whether the score of a position with earlier ones falls with the distance."""
    past = mean[: len(mean) // 2 + 1][::-1]  # from distance 0 on
    quarter = max(1, len(past) // 4)
    always, mostly = bool((np.diff(past) < 0).all()), bool(past[-quarter:].mean() < past[:quarter].mean())
    how = "at every step" if always else "on average, but not at every step" if mostly else "on no long range"
    sentence = f"Scores fall with the distance {how}: {past[0]:.2f} at 0, {past[-1]:.2f} at {len(past) - 1}.".replace(
        "-", "−"
    )
    return {"name": "Decay", "holds": always or mostly, "description": sentence}


def view_sinusoid(module: SinusoidalPositions, length: int, head: int) -> PositionView:
    table = build_sinusoids(torch.arange(length), module.width, module.halves)
    order = "all sines first, then the cosines" if module.halves else "sines in even columns, cosines in odd ones"
    return PositionView(
        "Sinusoid",
        "PE(p, 2i) = sin(p / 10000^(2i/d)),  PE(p, 2i+1) = cos(p / 10000^(2i/d))",
        "Added to the embeddings; nothing is learnt, and any length is possible. A shift by k rotates each pair of "
        "columns by the same angle at every position, so PE(p)·PE(q) depends on q − p alone. "
        f"Column order: {order}.",
        ("position", "column"),
        "PE",
        to_numpy(table),
        "PE(p)·PE(q)",
        to_numpy(table @ table.T)[None],
    )


def view_learned(module: LearnedPositions, length: int, head: int) -> PositionView:
    length = min(length, module.max_length)
    table = module.look_up(torch.arange(length), 0, length)  # (P, C)
    return PositionView(
        "Learned table",
        "x + table[p]",
        f"Added to the embeddings; one learnt vector for each of {module.max_length:,} positions, none beyond. "
        "Neither shift invariance nor decay is built in: both can only be learnt from the data.",
        ("position", "column"),
        "table",
        to_numpy(table),
        "table[p]·table[q]",
        to_numpy(table @ table.T)[None],
    )


def view_rotary(module: Rotary, length: int, head: int) -> PositionView:
    pairs = len(module.rates)
    unit = torch.cat((torch.ones(pairs), torch.zeros(pairs))).expand(1, 1, length, -1)  # (1, 1, P, C)
    table = module.rotate(unit, torch.arange(length))[0, 0]
    return PositionView(
        "Rotary",
        "(R_p q)·(R_q k) = q·R_(q−p) k,  R_p rotates channels i and i + d/2 by p / base^(2i/d)",
        "Rotates queries and keys instead of adding to them, so that each score depends on the distance alone, for any "
        "q and k. The table shows the vector (1, 0) of each pair of channels after rotation: cosines, then sines. "
        "The curve is the score of this vector with itself.",
        ("position", "channel"),
        "R q",
        to_numpy(table),
        "(R_p q)·(R_q q) / pairs",
        to_numpy(table @ table.T / pairs)[None],
    )


def view_alibi(module: Alibi, length: int, head: int) -> PositionView:
    return view_bias(
        module,
        length,
        head,
        "ALiBi",
        "score(i, j) − m_h |j − i|,  m_h = 2^(−8h/H)",
        "A linear penalty with a fixed slope for each head; nothing is learnt. Texts longer than those of training "
        "continue the same line.",
    )


def view_t5(module: T5Bias, length: int, head: int) -> PositionView:
    return view_bias(
        module,
        length,
        head,
        "T5 relative position bias",
        "score(i, j) + b_h[bucket(j − i)]",
        f"One learnt bias for each head and each of {module.buckets} buckets of distances: each small distance has its "
        f"own bucket, larger ones share buckets on a logarithmic scale, and all from {module.max_distance} on share "
        "the last. Shift invariance is exact; decay exists only if it was learnt.",
    )


def view_bias(module: ScoreMod, length: int, head: int, name: str, formula: str, description: str) -> PositionView:
    """A bias that is added to the scores by distance."""
    positions = torch.arange(length)
    scores = to_numpy(module.bias(AttentionLayout(length, length, positions, positions)))  # (H, P, P)
    if not 0 <= head < len(scores):
        raise UserError(f"head: {head + 1} does not exist; choose one from 1 to {len(scores)}")
    unit = "added to the score"
    return PositionView(name, formula, description, ("query i", "key j"), "bias", scores[head], unit, scores, head=head)


def view_t5_buckets(length: int, head: int) -> PositionView:
    """Which bucket each distance falls into."""
    module = T5Bias(1)
    module.table.weight.data = torch.arange(float(module.buckets))[:, None]
    view = view_t5(module, length, head)
    description = f"{view.description} Here the bias of bucket n is n, to show where the buckets begin and end."
    return replace(view, description=description, unit="bucket number", check_decay=False)


VIEWS: dict[type[nn.Module], Callable[[Any, int, int], PositionView]] = {
    SinusoidalPositions: view_sinusoid,
    LearnedPositions: view_learned,
    Rotary: view_rotary,
    Alibi: view_alibi,
    T5Bias: view_t5,
}


@torch.inference_mode()
def view_kind(kind: str, length: int, width: int, heads: int, head: int) -> PositionView:
    """The view of an untrained position encoding."""
    kinds: dict[str, Callable[[], PositionView]] = {
        "sinusoid": lambda: view_sinusoid(SinusoidalPositions(width), length, head),
        "rotary": lambda: view_rotary(Rotary(width), length, head),
        "alibi": lambda: view_alibi(Alibi(heads), length, head),
        "buckets": lambda: view_t5_buckets(length, head),
    }
    if kind not in kinds:
        raise UserError(f"positions: there is no kind '{kind}'; choose one of {', '.join(kinds)}")
    return kinds[kind]()


@torch.inference_mode()
def view_model(model: nn.Module, which: int, length: int, head: int) -> tuple[list[str], PositionView]:
    """The names of all position encodings of a model, and the view of one of them."""
    views: dict[str, Callable[[], PositionView]] = {}
    for name, module in model.named_modules():
        for kind, draw in VIEWS.items():
            if isinstance(module, kind):  # all layers of a stack have the same
                label = f"{name.partition('.')[0]}: {kind.__name__}"
                views.setdefault(label, partial(draw, module, length, head))
    if not views:
        raise UserError("this run's model has no position encoding that can be drawn; choose another run")
    if not 0 <= which < len(views):
        raise UserError(f"which: this run has {len(views)} position encodings; choose one from 0 to {len(views) - 1}")
    return list(views), list(views.values())[which]()


def pack_view(view: PositionView, **extra: Any) -> bytes:
    response = BinaryResponse()
    mean, low, high = view.score_by_distance()
    return response.to_bytes(
        {
            "name": view.name,
            "formula": view.formula,
            "description": view.description,
            "axes": view.axes,
            "symbol": view.symbol,
            "unit": view.unit,
            "head": view.head,
            "properties": view.check_properties(),
            "table": response.add(view.table),
            **{name: response.add(values) for name, values in (("mean", mean), ("low", low), ("high", high))},
            **extra,
        }
    )


def build_masks(length: int, padding: int, side: str, left: int, right: int, segments: int) -> dict[str, Any]:
    """What each mask allows, (queries, keys): True = visible. Computed by the models' own score mods."""
    positions = torch.arange(length)
    keep = (positions < length - padding if side == "right" else positions >= padding)[None]
    document = (positions * min(segments, length) // length)[None]
    layout = AttentionLayout(length, length, positions, positions, keep, document, document)
    score_mods = {"causal": Causal(), "padding": Padding(), "window": Window(left, right), "segments": Segments()}
    allowed: dict[str, Any] = {"keep": keep[0].tolist(), "document": document[0].tolist()}
    for name, mod in score_mods.items():
        mask = mod.mask(layout)
        assert mask is not None
        allowed[name] = (~mask).expand(1, 1, length, length)[0, 0].tolist()
    return allowed


def to_numpy(values: Tensor) -> Floats:
    return values.detach().double().cpu().numpy()
