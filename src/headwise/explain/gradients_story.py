"""Vanishing and exploding gradients as a story: the closed form, every path, overflow and clipping, truncation."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from headwise.explain.chart import COLOURS, Chart, Line
from headwise.explain.gradients import CLIP, FORGET_BIASES, Curve, GradientMeasurements, GradientSettings
from headwise.explain.story import Matrix, Step, Story

PATH_COLOURS = dict(zip(("linear", "tanh", "LSTM", "residual", "attention"), COLOURS, strict=False))
FLOOR, CEILING = 1e-20, 1e10  # limits of the chart
SHOWN_STEPS = (0, 1, 2, 5, 10, 20, 40)  # steps of the descent


def build_story(settings: GradientSettings, measured: GradientMeasurements) -> Story:
    """The steps from one matrix to attention."""
    return Story(
        "Gradients over distance",
        f"How strongly does the state at the end depend on the one {settings.length} steps before? The chain rule "
        "multiplies one Jacobian for each step between them, and the norm of that product says how much of the "
        "gradient at the end arrives at the beginning. Every number is measured by automatic differentiation.",
        tuple(
            step(settings, measured)
            for step in (_closed_form_step, _tanh_step, _path_step, _overflow_step, _clipping_step, _truncation_step)
        ),
    )


def _select_curves(measured: GradientMeasurements, path: str) -> list[Curve]:
    return [curve for curve in measured.curves if curve.path == path]


def _norm_table(name: str, curves: Sequence[Curve], length: int) -> Matrix:
    """Norms at some distances, one row a curve."""
    round_ = [distance for distance in (1, 2, 5, 10, 20, 50, 100, 200, 500) if distance < length]
    distances = [*round_[-6:], length]
    values = np.array([curve.norms[distances] for curve in curves])
    rows, columns = tuple(curve.name for curve in curves), tuple(str(d) for d in distances)
    return Matrix(name, values, rows, columns, 1, scientific=True)


def _closed_form_step(settings: GradientSettings, measured: GradientMeasurements) -> Step:
    curves = _select_curves(measured, "linear")
    distance = np.arange(settings.length + 1)
    error = max(np.abs(curve.norms / float(rho) ** distance - 1).max() for curve in curves if (rho := curve.setting))
    return Step(
        "One matrix, again and again",
        "Without an activation, h_t~=~W~x_t~+~U~h_(t−1), each step multiplies by the same U. Let U be ρ times an "
        "orthogonal matrix, which turns and never stretches: then ‖∂h_T/∂h_t‖~=~ρ^(T−t). Below 1 it vanishes, above "
        "1 it explodes, and only ρ~=~1 is stable.",
        ((_norm_table("‖∂h_T/∂h_t‖ by T − t", curves, settings.length),),),
        (f"largest relative difference from ρ^(T−t): {error:.0e}",),
    )


def _tanh_step(settings: GradientSettings, measured: GradientMeasurements) -> Step:
    linear, tanh = _select_curves(measured, "linear"), _select_curves(measured, "tanh")
    most = max((t.norms / one.norms)[1:].max() for one, t in zip(linear, tanh, strict=True))
    return Step(
        "Squashing can only shrink",
        "With tanh each step multiplies by diag(tanh′)~U, and tanh′ is at most 1: the norm never exceeds ρ^(T−t). Fed "
        "with inputs of ordinary size it falls far below, whatever ρ is.",
        ((_norm_table("‖∂h_T/∂h_t‖ by T − t", tanh, settings.length),),),
        (f"largest share of the closed form: {most:.6f}",),
    )


def _path_step(settings: GradientSettings, measured: GradientMeasurements) -> Step:
    curves = [curve for path in ("LSTM", "residual", "attention") for curve in _select_curves(measured, path)]
    usual, open_ = FORGET_BIASES
    lines = tuple(
        Line(curve.name, range(settings.length + 1), curve.norms.tolist(), PATH_COLOURS[curve.path])
        for curve in measured.curves
    )
    return Step(
        "Paths that keep the gradient",
        "An LSTM adds to its cell instead of multiplying it: what passes is the product of its forget gates, and they "
        f"are learnt. A forget bias of {usual:g} opens them to σ({usual:g})~=~{_sigmoid(usual):.2f}, which still "
        f"fades, but far slower than tanh with ρ~=~1; at {open_:g}, σ~=~{_sigmoid(open_):.2f}, it lasts. A residual "
        "path, x~+~f(x), always lets the gradient pass unchanged beside f (distance in layers). Attention is one step "
        "from everywhere to everywhere: weak where the weights are spread, but about the same at every distance.",
        ((_norm_table("‖∂h_T/∂h_t‖ by T − t", curves, settings.length),),),
        chart=Chart("Gradients over distance", "distance T − t", "‖∂h_T/∂h_t‖", lines, floor=FLOOR, ceiling=CEILING),
    )


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def _overflow_step(settings: GradientSettings, measured: GradientMeasurements) -> Step:
    lengths = tuple(str(length) for length in measured.overflow)
    end = math.log(np.finfo(np.float32).max) / math.log(measured.exploding_rho)
    return Step(
        f"Exploding: ρ = {measured.exploding_rho:g} in float32",
        "The largest entry of ∂h_T/∂h_0 in 32 bits, whose largest number is 3.4·10³⁸. Beyond it there is only "
        "infinity, and infinities of both signs add up to NaN, which every weight then becomes.",
        ((Matrix("largest entry by length", [[*measured.overflow.values()]], (), lengths, 1, scientific=True),),),
        (f"{measured.exploding_rho:g}^n passes 3.4·10³⁸ at n = {math.ceil(end)}",),
    )


def _clipping_step(settings: GradientSettings, measured: GradientMeasurements) -> Step:
    values = np.array([[losses[step] for step in SHOWN_STEPS] for losses in measured.losses.values()])
    rows = tuple(f"clip {clip:g}" if clip else "no clipping" for clip in measured.losses)
    return Step(
        "The cure: clip the norm",
        f"The same network, over {measured.train_length} steps, learns to end at zero; its loss after some updates. "
        "A gradient of huge norm points the right way but too far: after one step nothing is finite any more. "
        f"(Training then skips every further update, so the weights stay as they are.) Scaled down to norm {CLIP:g} "
        "(`train.clip_norm`), it leads downhill. What has overflowed already, no clipping brings back.",
        ((Matrix("loss by update", values, rows, tuple(map(str, SHOWN_STEPS)), 1, scientific=True),),),
    )


def _truncation_step(settings: GradientSettings, measured: GradientMeasurements) -> Step:
    k = settings.truncate
    near = sorted({d for d in (1, k - 1, k, k + 1, settings.length) if 1 <= d <= settings.length})
    values = measured.truncated.norms[near][None]
    return Step(
        f"Truncated after {k} steps",
        f"Backpropagation through time may stop after k~=~{k} steps: the state is detached. "
        "That bounds memory and growth alike, and nothing further away than k is ever learnt: the gradient there is "
        "not small but exactly 0.",
        (
            (
                Matrix(
                    f"‖∂h_T/∂h_t‖ by T − t, ρ = {measured.exploding_rho:g}",
                    values,
                    (),
                    tuple(map(str, near)),
                    1,
                    scientific=True,
                ),
            ),
        ),
    )
