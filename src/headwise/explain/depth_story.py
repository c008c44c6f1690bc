"""The story of deep stacks: unbalanced gradients, amplified noise, and Admin's initial scales."""

from __future__ import annotations

import numpy as np

from headwise.explain.chart import COLOURS, Chart, Line
from headwise.explain.depth import LENGTH, ROWS, WIRINGS, DepthMeasurements, DepthSettings
from headwise.explain.story import Matrix, Step, Story

WIRING_COLOURS = dict(zip(WIRINGS, COLOURS, strict=False))
NAMES = tuple(WIRINGS.values())
PROSE = {
    "decoder": "The norm of the gradient of each layer's weights. In a Post-LN decoder it fades on its way from the "
    "output to the input. After cross-attention the norm divides the stream, while the branch returns hardly any "
    "gradient to it: its queries only choose among the encoder's vectors, and the gradient goes to the encoder.",
    "encoder": "Without cross-attention every branch returns about what its norm takes: no wiring lets the gradient "
    "vanish. In Pre-LN and Admin it falls towards the output, where each part is a smaller share of the stream.",
}


def build_story(settings: DepthSettings, measured: DepthMeasurements) -> Story:
    """The steps: gradients, balance, amplification of noise, Admin's initial scales."""
    return Story(
        "Training depth",
        f"Transformers of width {settings.width} before their first step, on {ROWS} rows of {LENGTH} random tokens; "
        f"seeds averaged: {settings.seeds}. Post-LN is norm(x~+~f(x)), Pre-LN is x~+~f(norm(x)) with one norm at the "
        "end, Admin is norm(ω~x~+~f(x)) with vectors ω that one pass sets before training.",
        (
            _gradient_step(settings, measured, "decoder", "Gradients of a deep decoder"),
            _gradient_step(settings, measured, "encoder", "And of its encoder"),
            _balance_step(settings, measured),
            _amplification_step(settings, measured),
            _scale_step(settings, measured),
        ),
    )


def _pick_layers(count: int) -> list[int]:
    """Up to nine evenly spaced indices below `count`, both ends included."""
    return sorted({round(place) for place in np.linspace(0, count - 1, min(count, 9))})


def _gradient_step(settings: DepthSettings, measured: DepthMeasurements, stack: str, title: str) -> Step:
    depth = settings.depths[-1]
    norms = {wiring: measured.gradients[wiring, stack, depth] for wiring in WIRINGS}
    shown = _pick_layers(depth)
    lines = tuple(
        Line(name, range(1, depth + 1), norms[wiring].tolist(), WIRING_COLOURS[wiring])
        for wiring, name in WIRINGS.items()
    )
    table = np.array([each[shown] for each in norms.values()])
    return Step(
        title,
        PROSE[stack],
        ((Matrix("‖∂L/∂W‖ by layer", table, NAMES, tuple(str(place + 1) for place in shown), 1, scientific=True),),),
        chart=Chart(f"Gradients of the {stack}", f"layer of the {stack}, from its input on", "‖∂L/∂W‖", lines),
    )


def _balance_step(settings: DepthSettings, measured: DepthMeasurements) -> Step:
    columns = tuple(map(str, settings.depths))

    def ratios(stack: str) -> Matrix:
        norms = [[measured.gradients[wiring, stack, depth] for depth in settings.depths] for wiring in WIRINGS]
        values = [[each.max() / each.min() for each in row] for row in norms]
        return Matrix(f"{stack}, by depth", values, NAMES, columns, 1, scientific=True)

    return Step(
        "How uneven, at every depth",
        "The largest gradient norm of a layer over the smallest. Adam divides each gradient by its own size, so "
        "uneven gradients alone do not keep a model from learning (Liu et al. 2020).",
        ((ratios("encoder"), ratios("decoder")),),
    )


def _amplification_step(settings: DepthSettings, measured: DepthMeasurements) -> Step:
    table = np.array([each.mean for each in measured.growth.values()])
    lines = tuple(
        Line(name, settings.depths, measured.growth[wiring].mean.tolist(), WIRING_COLOURS[wiring])
        for wiring, name in WIRINGS.items()
    )
    worked = tuple(
        f"{WIRINGS[wiring]}: {each.better_fit} fits better (R² {each.fits['N']:.3f} with N, {each.fits['log N']:.3f} "
        f"with log N); as a power law N^{each.exponent:.2f}"
        for wiring, each in measured.growth.items()
    )
    return Step(
        "Amplification",
        "Add a little noise to every matrix of an encoder, as an update does: how far does the output move? Shown is "
        "the square of the relative change over the square of the relative noise. Each part moves the output by its "
        "share of the stream. In Post-LN every norm makes room for the next part, so the last ones weigh as much as "
        "any: O(N). In Pre-LN the stream grows and each part is a smaller share of it: O(log~N).",
        (
            (
                Matrix(
                    "‖ΔF‖² / ‖F‖² / noise², by depth",
                    table,
                    NAMES,
                    tuple(map(str, settings.depths)),
                    1,
                    scientific=True,
                ),
            ),
        ),
        worked,
        Chart("Amplification", "layers N", "relative output change²", lines, log_x=True),
    )


def _scale_step(settings: DepthSettings, measured: DepthMeasurements) -> Step:
    shown = _pick_layers(len(measured.scales))
    return Step(
        "What Admin begins with",
        "One pass down the stack sets ω_1~=~1 and ω_(i+1)²~=~Var[ω_i~x]~+~Var[f_i(x)]: the variance that the stream "
        "would have without norms, which is what makes late parts weigh little in Pre-LN. Unlike there, ω is trained.",
        ((Matrix("ω by residual sum", [measured.scales[shown]], (), tuple(str(place + 1) for place in shown), 2),),),
    )
