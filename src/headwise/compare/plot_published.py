"""Our scores against published ones: a point per arm, noise as error bars, the rank correlation in the title."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from headwise.compare.analysis import Analysis, analyse, collect_figures, collect_values, format_correlation
from headwise.compare.labels import add_label, place_labels
from headwise.compare.plot import DOT, INTERVAL, TICK
from headwise.compare.values import Comparison
from headwise.errors import UserError
from headwise.inspect.files import check_ending, open_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.text import Annotation


def plot_published(comparison: Comparison, out: Path | str) -> Path:
    """A panel for each score of the table's analysis; the ending of `out` decides the format: .png or .svg."""
    out = Path(out)
    check_ending(out, ".svg", ".png")
    shown = [analysis for analysis in analyse(comparison) if _has_points(comparison, analysis.score)]
    if not shown:
        raise UserError(f"{out}: nothing is drawn, as no arm has a score and a published figure")
    with open_figure(out, 11, 0.5 + 9 * len(shown)) as page:
        page.suptitle(comparison.title)
        panels = [
            _draw_panel(page.add_subplot(len(shown), 1, number), comparison, analysis)
            for number, analysis in enumerate(shown, 1)
        ]
        page.draw_without_rendering()
        for axes, labels in panels:
            place_labels(axes, labels)
    return out


def _has_points(comparison: Comparison, score: str) -> bool:
    return bool(collect_figures(comparison, score, collect_values(comparison, score)))


def _draw_panel(axes: Axes, comparison: Comparison, analysis: Analysis) -> tuple[Axes, list[Annotation]]:
    """Published scores to the right, ours upwards; error bars are one standard error of a mean."""
    score, noise, labels = analysis.score, analysis.noise, []
    values = collect_values(comparison, score)
    figures = collect_figures(comparison, score, values)
    baseline = comparison.analysis.baseline or next(iter(values))
    means = {arm: fmean(values[arm].values()) for arm in figures}
    for arm, figure in figures.items():
        point, colour = (figure.value, means[arm]), TICK if arm == baseline else DOT
        error = sqrt(noise.square_error(arm, len(values[arm]))) if noise else 0.0
        axes.errorbar(*point, xerr=figure.error or 0.0, yerr=error, color=INTERVAL, alpha=0.4, linewidth=1)
        axes.plot(*point, "o", color=colour, markersize=5)
        labels.append(add_label(axes, arm, point, colour, size=7))
    _stretch(axes, "x", [figure.value for figure in figures.values()])
    _stretch(axes, "y", list(means.values()))
    title = f"{score}: Spearman {format_correlation(analysis.correlation)}" if analysis.correlation else score
    axes.set(xlabel=f"published {score}", ylabel=f"our {score}", title=title)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    return axes, labels


def _stretch(axes: Axes, direction: str, values: Sequence[float]) -> None:
    """Scale an axis so that crowded values are apart: asinh of the distance from the median, in units of the spread of
    the middle half. Ticks have the true values."""
    low, centre, high = np.percentile(values, [25, 50, 75])
    unit = float(high - low) / 2
    if not unit:
        return

    def compress(numbers: np.ndarray) -> np.ndarray:
        return np.arcsinh((numbers - centre) / unit)

    def expand(numbers: np.ndarray) -> np.ndarray:
        return np.sinh(numbers) * unit + centre

    span = np.ptp(compress(np.array(values)))
    ends = compress(np.array([min(values), max(values)])) + np.array([-0.12, 0.12]) * span
    settings = {f"{direction}lim": tuple(expand(ends)), f"{direction}scale": ("function", (compress, expand))}
    getattr(axes, f"set_{direction}scale")("function", functions=settings[f"{direction}scale"][1])
    getattr(axes, f"set_{direction}lim")(settings[f"{direction}lim"])
