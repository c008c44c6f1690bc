"""Vanishing and exploding gradients as a story: the closed form, every path, overflow and clipping, truncation."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from headwise.explain.chart import HUES, Chart, Line
from headwise.explain.gradients import CLIP, FORGET, Curve, Findings, Gradients
from headwise.explain.story import Matrix, Step, Story

PATHS = dict(zip(("linear", "tanh", "LSTM", "residual", "attention"), HUES, strict=False))
FLOOR, CEILING = 1e-20, 1e10  # beyond them a curve has long said what it has to say
SHOWN = (0, 1, 2, 5, 10, 20, 40)  # steps of the descent


def story(given: Gradients, found: Findings) -> Story:
    """The walk from one matrix to attention."""
    return Story(
        "Gradients over distance",
        f"How strongly does the state at the end depend on the one {given.length} steps before? The chain rule "
        "multiplies one Jacobian for each step between them, and the norm of that product is how much of a lesson "
        "learnt at the end arrives at the beginning. Every number is measured by automatic differentiation.",
        tuple(step(given, found) for step in (_closed, _squashed, _paths, _exploding, _clipped, _truncated)),
    )


def _of(found: Findings, path: str) -> list[Curve]:
    return [curve for curve in found.curves if curve.path == path]


def _table(name: str, curves: Sequence[Curve], length: int) -> Matrix:
    """Norms at some distances, one row a curve."""
    round_ = [distance for distance in (1, 2, 5, 10, 20, 50, 100, 200, 500) if distance < length]
    distances = [*round_[-6:], length]
    values = np.array([curve.norms[distances] for curve in curves])
    rows, columns = tuple(curve.name for curve in curves), tuple(str(d) for d in distances)
    return Matrix(name, values, rows, columns, 1, powers=True)


def _closed(given: Gradients, found: Findings) -> Step:
    curves = _of(found, "linear")
    distance = np.arange(given.length + 1)
    error = max(np.abs(curve.norms / float(rho) ** distance - 1).max() for curve in curves if (rho := curve.setting))
    return Step(
        "One matrix, again and again",
        "Without an activation, h_t~=~W~x_t~+~U~h_(t−1), each step multiplies by the same U. Let U be ρ times an "
        "orthogonal matrix, which turns and never stretches: then ‖∂h_T/∂h_t‖~=~ρ^(T−t). Below 1 it vanishes, above "
        "1 it explodes, and only ρ~=~1 is stable.",
        ((_table("‖∂h_T/∂h_t‖ by T − t", curves, given.length),),),
        (f"largest relative difference from ρ^(T−t): {error:.0e}",),
    )


def _squashed(given: Gradients, found: Findings) -> Step:
    linear, tanh = _of(found, "linear"), _of(found, "tanh")
    most = max((t.norms / one.norms)[1:].max() for one, t in zip(linear, tanh, strict=True))
    return Step(
        "Squashing can only shrink",
        "With tanh each step multiplies by diag(tanh′)~U, and tanh′ is at most 1: the norm never exceeds ρ^(T−t). Fed "
        "with inputs of ordinary size it falls far below, whatever ρ is.",
        ((_table("‖∂h_T/∂h_t‖ by T − t", tanh, given.length),),),
        (f"largest share of the closed form: {most:.6f}",),
    )


def _paths(given: Gradients, found: Findings) -> Step:
    curves = [curve for path in ("LSTM", "residual", "attention") for curve in _of(found, path)]
    usual, open_ = FORGET
    lines = tuple(
        Line(curve.name, range(given.length + 1), curve.norms.tolist(), PATHS[curve.path]) for curve in found.curves
    )
    return Step(
        "Paths that keep the gradient",
        "An LSTM adds to its cell instead of multiplying it: what passes is the product of its forget gates, and they "
        f"are learnt. A forget bias of {usual:g} opens them to σ({usual:g})~=~{_sigmoid(usual):.2f}, which still "
        f"fades, but far slower than tanh with ρ~=~1; at {open_:g}, σ~=~{_sigmoid(open_):.2f}, it lasts. A residual "
        "path, x~+~f(x), always lets the gradient pass unchanged beside f (distance in layers). Attention is one step "
        "from everywhere to everywhere: weak where the weights are spread, but about the same at every distance.",
        ((_table("‖∂h_T/∂h_t‖ by T − t", curves, given.length),),),
        chart=Chart("Gradients over distance", "distance T − t", "‖∂h_T/∂h_t‖", lines, floor=FLOOR, ceiling=CEILING),
    )


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def _exploding(given: Gradients, found: Findings) -> Step:
    lengths = tuple(str(length) for length in found.overflow)
    end = math.log(np.finfo(np.float32).max) / math.log(found.steep)
    return Step(
        f"Exploding: ρ = {found.steep:g} in float32",
        "The largest entry of ∂h_T/∂h_0 in 32 bits, whose largest number is 3.4·10³⁸. Beyond it there is only "
        "infinity, and infinities of both signs add up to NaN, which every weight then becomes.",
        ((Matrix("largest entry by length", [[*found.overflow.values()]], (), lengths, 1, powers=True),),),
        (f"{found.steep:g}^n passes 3.4·10³⁸ at n = {math.ceil(end)}",),
    )


def _clipped(given: Gradients, found: Findings) -> Step:
    values = np.array([[losses[step] for step in SHOWN] for losses in found.losses.values()])
    rows = tuple(f"clip {clip:g}" if clip else "no clipping" for clip in found.losses)
    return Step(
        "The cure: clip the norm",
        f"The same network, over {found.descent} steps, learns to end at zero; its loss after some updates. A gradient "
        "of huge norm points the right way and leads too far: one step, and nothing is finite any more. (Training then "
        f"refuses every further update, so the weights stay what they are.) Scaled down to norm {CLIP:g} "
        "(`train.clip_norm`), it leads downhill. What has overflowed already, no clipping brings back.",
        ((Matrix("loss by update", values, rows, tuple(map(str, SHOWN)), 1, powers=True),),),
    )


def _truncated(given: Gradients, found: Findings) -> Step:
    k = given.truncate
    near = sorted({d for d in (1, k - 1, k, k + 1, given.length) if 1 <= d <= given.length})
    values = found.truncated.norms[near][None]
    return Step(
        f"Truncated after {k} steps",
        f"Backpropagation through time may stop after k~=~{k} steps: the state goes on as a number without a history. "
        "That bounds memory and growth alike, and nothing further away than k is ever learnt: the gradient there is "
        "not small but exactly 0.",
        ((Matrix(f"‖∂h_T/∂h_t‖ by T − t, ρ = {found.steep:g}", values, (), tuple(map(str, near)), 1, powers=True),),),
    )
