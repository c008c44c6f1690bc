"""Our scores against published ones: a point per arm, noise as error bars, the rank correlation in the title."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isfinite, sqrt
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from headwise.compare.analysis import (
    STANDARD_ERRORS,
    Analysis,
    analyse,
    collect_figures,
    collect_values,
    find_baseline,
    format_correlation,
    name_published,
)
from headwise.compare.estimate import estimate_score
from headwise.compare.labels import add_label, place_labels
from headwise.compare.plot import DOT, INTERVAL, TICK
from headwise.compare.values import Comparison
from headwise.errors import UserError
from headwise.inspect.files import check_ending, open_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.text import Annotation

MARGIN = 0.1  # of the range, on each side

Transform = Callable[[np.ndarray], np.ndarray]


def plot_published(comparisons: Sequence[Comparison], out: Path | str, title: str) -> Path:
    """A panel for each score of the tables' analyses; the ending of `out` decides the format: .png or .svg."""
    out = Path(out)
    check_ending(out, ".svg", ".png")
    shown = [
        (comparison, analysis)
        for comparison in comparisons
        for analysis in analyse(comparison)
        if _has_points(comparison, analysis.score)
    ]
    if not shown:
        raise UserError(f"{out}: nothing is drawn, as no arm has a score and a published figure")
    height = min(4.5 + 0.1 * max(len(comparison.arms) for comparison, _ in shown), 9)  # labels need room
    across = 2 if len(shown) > 2 else 1
    down = -(-len(shown) // across)
    with open_figure(out, 11 * across, 0.5 + height * down) as page:
        page.suptitle(title)
        panels = [
            _draw_panel(page.add_subplot(down, across, number), comparison, analysis, named=len(comparisons) > 1)
            for number, (comparison, analysis) in enumerate(shown, 1)
        ]
        page.draw_without_rendering()
        for axes, labels in panels:
            place_labels(axes, labels)
    return out


def _has_points(comparison: Comparison, score: str) -> bool:
    return bool(collect_figures(comparison, score, collect_values(comparison, score)))


def _draw_panel(axes: Axes, comparison: Comparison, analysis: Analysis, named: bool) -> tuple[Axes, list[Annotation]]:
    """Published scores to the right, ours upwards; error bars are one standard error of a mean. `named`: with the title
    of its table."""
    score, noise, labels = analysis.score, analysis.noise, []
    values = collect_values(comparison, score)
    figures = collect_figures(comparison, score, values)
    baseline = find_baseline(comparison)
    means = {arm: fmean(values[arm].values()) for arm in figures}
    for arm, figure in figures.items():
        point, colour = (figure.value, means[arm]), TICK if arm == baseline else DOT
        error = sqrt(noise.square_error(arm, len(values[arm]))) if noise else _item_error(comparison, arm, score)
        axes.errorbar(*point, xerr=figure.error or 0.0, yerr=error, color=INTERVAL, alpha=0.4, linewidth=1)
        axes.plot(*point, "o", color=colour, markersize=5)
        labels.append(add_label(axes, arm, point, colour, size=7))
    for values_shown, set_scale, set_limits in (
        ([figure.value for figure in figures.values()], axes.set_xscale, axes.set_xlim),
        (list(means.values()), axes.set_yscale, axes.set_ylim),
    ):
        if scale := find_scale(values_shown):
            set_scale("function", functions=scale.functions)
            set_limits(scale.limits)
    title = f"{score}: Spearman {format_correlation(analysis.correlation)}" if analysis.correlation else score
    axes.set(xlabel=name_published(comparison.analysis, score), ylabel=f"our {score}")
    axes.set_title(f"{comparison.title}\n{title}" if named else title)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    return axes, labels


def _item_error(comparison: Comparison, arm: str, score: str) -> float:
    """The standard error over the test items, of one seed; 0 if there is no interval."""
    estimate = estimate_score(comparison, arm, score)
    return estimate.margin / STANDARD_ERRORS if estimate and isfinite(estimate.margin) else 0.0


class Scale(NamedTuple):
    """A nonlinear axis: a function with its inverse, and limits."""

    functions: tuple[Transform, Transform]
    limits: tuple[float, float]


def find_scale(values: Sequence[float]) -> Scale | None:
    """A scale on which crowded values are apart: asinh of the distance from the median, in units of half the
    interquartile range. None if the middle half of the values are equal."""
    low, centre, high = np.percentile(values, [25, 50, 75])
    unit = (high - low) / 2
    if not unit:
        return None

    def compress(numbers: np.ndarray) -> np.ndarray:
        return np.arcsinh((numbers - centre) / unit)

    def expand(numbers: np.ndarray) -> np.ndarray:
        return np.sinh(numbers) * unit + centre

    ends = compress(np.array([min(values), max(values)]))
    first, last = expand(ends + MARGIN * np.ptp(ends) * np.array([-1, 1]))
    return Scale((compress, expand), (float(first), float(last)))
