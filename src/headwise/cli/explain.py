"""`headwise explain`: worked examples with numbers, as text, picture or JSON."""

from __future__ import annotations

import json as json_format
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from headwise.utils.console import make_console

if TYPE_CHECKING:
    from headwise.explain.story import Story

app = App(
    name="explain", help="Worked examples with numbers: attention, positions, masks, gradients, depth and windows."
)


@app.command
def attention(*, file: Path | None = None, out: Path | None = None, json: bool = False) -> None:
    """Self-attention from inputs to outputs: Q, K, V, scores and weights, unscaled, rounded and scaled.

    For example:

        headwise explain attention
        headwise explain attention --out attention.svg
        headwise explain attention --file mine.toml --json

    Parameters
    ----------
    file
        A TOML file with your own inputs, query, key and value matrices.
    out
        Also write a picture: a name that ends in .svg or .png.
    json
        Print all numbers as one JSON object instead of text.
    """
    from headwise.explain import attention as topic
    from headwise.explain.source import load_file, load_shipped

    example = (
        load_file(topic.AttentionExample, file) if file else load_shipped(topic.AttentionExample, "attention.toml")
    )
    _show(lambda: topic.build_story(example), lambda: topic.to_json(example), out, json)


@app.command
def positions(*, width: int = 8, length: int = 10, shift: int = 3, out: Path | None = None, json: bool = False) -> None:
    """The sinusoid table, why a shift is a rotation, and why simpler encodings fail.

    For example:

        headwise explain positions
        headwise explain positions --width 6 --length 12 --shift 2 --out positions.png

    Parameters
    ----------
    width
        Columns of the table.
    length
        Rows of the table.
    shift
        The shift whose rotation matrix is shown.
    out
        Also write a picture: a name that ends in .svg or .png.
    json
        Print all numbers as one JSON object instead of text.
    """
    from headwise.explain import positions as topic

    settings = topic.PositionSettings(width, length, shift)
    _show(lambda: topic.build_story(settings), lambda: topic.to_json(settings), out, json)


@app.command
def mask(*, file: Path | None = None, out: Path | None = None, json: bool = False) -> None:
    """Causal and padding masks before and after the softmax, and a row that is masked entirely.

    For example:

        headwise explain mask
        headwise explain mask --file mine.toml --out mask.svg

    Parameters
    ----------
    file
        A TOML file with your own scores, and optionally tokens and keep.
    out
        Also write a picture: a name that ends in .svg or .png.
    json
        Print all numbers as one JSON object instead of text.
    """
    from headwise.explain import mask as topic
    from headwise.explain.source import load_file, load_shipped

    example = load_file(topic.MaskExample, file) if file else load_shipped(topic.MaskExample, "mask.toml")
    _show(lambda: topic.build_story(example), lambda: topic.to_json(example), out, json)


@app.command
def gradients(
    *,
    length: int = 100,
    rho: Annotated[list[float] | None, Parameter(negative="", consume_multiple=True)] = None,
    truncate: int = 20,
    out: Path | None = None,
    json: bool = False,
) -> None:
    """Why gradients vanish or explode over distance, and what LSTM, residuals, attention and clipping change.

    For example:

        headwise explain gradients
        headwise explain gradients --length 200 --rho 0.95 1.05 --out gradients.svg

    Parameters
    ----------
    length
        The largest distance.
    rho
        Scales of the recurrent matrix, 0.9 1.0 1.1 if none is given: one step multiplies the gradient by it.
    truncate
        Steps after which backpropagation through time is cut off.
    out
        Also write a picture: a name that ends in .svg or .png.
    json
        Print all numbers as one JSON object instead of text.
    """
    from headwise.explain import gradients as topic
    from headwise.explain.gradients_story import build_story

    settings = topic.GradientSettings(length, tuple(rho or (0.9, 1.0, 1.1)), truncate)
    measured = topic.measure(settings)
    _show(lambda: build_story(settings, measured), lambda: topic.to_json(settings, measured), out, json)


@app.command
def depth(
    *,
    depths: Annotated[list[int] | None, Parameter(negative="", consume_multiple=True)] = None,
    width: int = 64,
    seeds: int = 3,
    out: Path | None = None,
    json: bool = False,
) -> None:
    """Why deep Post-LN stacks are hard to train: gradients by layer, and noise in the weights amplified by depth.

    For example:

        headwise explain depth
        headwise explain depth --depths 2 6 18 54 --seeds 5 --out depth.svg

    Parameters
    ----------
    depths
        Numbers of layers to compare, 2 4 8 16 32 if none is given.
    width
        Width of the models.
    seeds
        Number of models to average.
    out
        Also write a picture: a name that ends in .svg or .png.
    json
        Print all numbers as one JSON object instead of text.
    """
    from headwise.explain import depth as topic
    from headwise.explain.depth_story import build_story

    settings = topic.DepthSettings(tuple(depths or (2, 4, 8, 16, 32)), width, seeds)
    measured = topic.measure(settings)
    _show(lambda: build_story(settings, measured), lambda: topic.to_json(settings, measured), out, json)


@app.command
def windows(*, grid: int = 8, window: int = 4, shift: int = 2, out: Path | None = None, json: bool = False) -> None:
    """Shifted window attention (Swin): how windows of an image are shifted, rolled and masked.

    For example:

        headwise explain windows
        headwise explain windows --grid 14 --window 7 --shift 3 --out windows.svg

    Parameters
    ----------
    grid
        Rows and columns of tokens.
    window
        Rows and columns of a window.
    shift
        Shift of the windows in every other layer.
    out
        Also write a picture: a name that ends in .svg or .png.
    json
        Print all numbers as one JSON object instead of text.
    """
    from headwise.explain import windows as topic

    settings = topic.ShiftedWindows(grid, window, shift)
    _show(lambda: topic.build_story(settings), lambda: topic.to_json(settings), out, json)


def _show(story: Callable[[], Story], data: Callable[[], Any], out: Path | None, json: bool) -> None:
    """Write the picture first, so that a wrong file name is an error before the text is printed."""
    if out is not None:
        from headwise.explain.picture import draw_story
        from headwise.inspect.files import save

        print(f"wrote {save(draw_story(story()), out)}", file=sys.stderr)
    if json:
        print(json_format.dumps(data(), allow_nan=False))
        return

    from headwise.explain.story import render_text

    console = make_console(highlight=False)
    console.print(render_text(story(), console.width), soft_wrap=True)
