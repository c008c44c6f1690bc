"""Deep stacks as a story: unbalanced gradients, amplified noise, and the scales that Admin begins with."""

from __future__ import annotations

import numpy as np

from headwise.explain.chart import HUES, Chart, Line
from headwise.explain.depth import LENGTH, ROWS, WIRINGS, Depth, Findings
from headwise.explain.story import Matrix, Step, Story

COLOURS = dict(zip(WIRINGS, HUES, strict=False))
NAMES = tuple(WIRINGS.values())
PROSE = {
    "decoder": "The norm of the gradient of each layer's weights. In a Post-LN decoder it fades on its way from the "
    "output to the input. After cross-attention the norm divides the stream, while the branch returns hardly any "
    "gradient to it: its queries only choose among the encoder's vectors, and the gradient goes to the encoder.",
    "encoder": "Without cross-attention every branch returns about what its norm takes: no wiring lets the gradient "
    "vanish. In Pre-LN and Admin it falls towards the output, where each part is a smaller share of the stream.",
}


def story(given: Depth, found: Findings) -> Story:
    """The walk from gradients to noise to a start that bears depth."""
    return Story(
        "Training depth",
        f"Transformers of width {given.width} before their first step, on {ROWS} rows of {LENGTH} random tokens; seeds "
        f"averaged: {given.seeds}. Post-LN is norm(x~+~f(x)), Pre-LN is x~+~f(norm(x)) with one norm at the end, Admin "
        "is norm(ω~x~+~f(x)) with vectors ω that one pass sets before training.",
        (
            _gradients(given, found, "decoder", "Gradients of a deep decoder"),
            _gradients(given, found, "encoder", "And of its encoder"),
            _balance(given, found),
            _amplified(given, found),
            _scales(given, found),
        ),
    )


def _shown(count: int) -> list[int]:
    """Up to nine places among `count`, evenly, both ends included."""
    return sorted({round(place) for place in np.linspace(0, count - 1, min(count, 9))})


def _gradients(given: Depth, found: Findings, stack: str, title: str) -> Step:
    depth = given.depths[-1]
    norms = {wiring: found.gradients[wiring, stack, depth] for wiring in WIRINGS}
    shown = _shown(depth)
    lines = tuple(
        Line(name, range(1, depth + 1), norms[wiring].tolist(), COLOURS[wiring]) for wiring, name in WIRINGS.items()
    )
    table = np.array([each[shown] for each in norms.values()])
    return Step(
        title,
        PROSE[stack],
        ((Matrix("‖∂L/∂W‖ by layer", table, NAMES, tuple(str(place + 1) for place in shown), 1, powers=True),),),
        chart=Chart(f"Gradients of the {stack}", f"layer of the {stack}, from its input on", "‖∂L/∂W‖", lines),
    )


def _balance(given: Depth, found: Findings) -> Step:
    columns = tuple(map(str, given.depths))

    def ratios(stack: str) -> Matrix:
        norms = [[found.gradients[wiring, stack, depth] for depth in given.depths] for wiring in WIRINGS]
        values = [[each.max() / each.min() for each in row] for row in norms]
        return Matrix(f"{stack}, by depth", values, NAMES, columns, 1, powers=True)

    return Step(
        "How uneven, at every depth",
        "The largest gradient norm of a layer over the smallest. Adam divides each gradient by its own size, so "
        "uneven gradients alone do not keep a model from learning (Liu et al. 2020).",
        ((ratios("encoder"), ratios("decoder")),),
    )


def _amplified(given: Depth, found: Findings) -> Step:
    table = np.array([each.mean for each in found.growth.values()])
    lines = tuple(
        Line(name, given.depths, found.growth[wiring].mean.tolist(), COLOURS[wiring])
        for wiring, name in WIRINGS.items()
    )
    worked = tuple(
        f"{WIRINGS[wiring]}: {each.better} fits better (R² {each.fits['N']:.3f} with N, {each.fits['log N']:.3f} with "
        f"log N); as a power law N^{each.exponent:.2f}"
        for wiring, each in found.growth.items()
    )
    return Step(
        "Amplification",
        "Add a little noise to every matrix of an encoder, as an update does: how far does the output move? Shown is "
        "the square of the relative change over the square of the relative noise. Each part moves the output by its "
        "share of the stream. In Post-LN every norm makes room for the next part, so the last ones weigh as much as "
        "any: O(N). In Pre-LN the stream grows and each part is a smaller share of it: O(log~N).",
        ((Matrix("‖ΔF‖² / ‖F‖² / noise², by depth", table, NAMES, tuple(map(str, given.depths)), 1, powers=True),),),
        worked,
        Chart("Amplification", "layers N", "relative output change²", lines, log_x=True),
    )


def _scales(given: Depth, found: Findings) -> Step:
    shown = _shown(len(found.scales))
    return Step(
        "What Admin begins with",
        "One pass down the stack sets ω_1~=~1 and ω_(i+1)²~=~Var[ω_i~x]~+~Var[f_i(x)]: the variance that the stream "
        "would have without norms, which is what makes late parts weigh little in Pre-LN. Unlike there, ω is trained.",
        ((Matrix("ω by residual sum", [found.scales[shown]], (), tuple(str(place + 1) for place in shown), 2),),),
    )
