"""Plots of loss over N, D and C on logarithmic axes: points, both laws, and their confidence bands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from headwise.compare.render import format_si
from headwise.errors import UserError
from headwise.inspect.files import check_ending, open_figure
from headwise.scaling.render import describe_range, format_interval
from headwise.scaling.resample import interval
from headwise.scaling.values import Relation, Scaling

POINT, CURVE = "#1f3a5f", "#c8ccd4"
COLOURS = {"power law": "#4c78a8", "with a floor": "#d1495b"}


def plot_scaling(scaling: Scaling, out: Path | str) -> Path:
    """Draw the laws; the ending of `out` decides the format: .png or .svg."""

    out = Path(out)
    check_ending(out, ".svg", ".png")
    relations = [relation for relation in scaling.relations.values() if relation.fits]
    if not relations:
        raise UserError(f"{out}: nothing is drawn, as no law could be fitted")
    with open_figure(out, 4.4 * len(relations), 4.2) as page:
        for axes, relation in zip(page.subplots(1, len(relations), squeeze=False)[0], relations, strict=True):
            if relation.quantity.name == "C":
                for rung in scaling.rungs:
                    axes.plot(rung.compute, rung.nll.mean(0), ".-", color=CURVE, linewidth=0.8, markersize=3, zorder=1)
            _draw_relation(axes, relation)
        page.suptitle(scaling.title)
        page.supxlabel(describe_range(scaling), fontsize=7, color="#555555")
    return out


def _draw_relation(axes: Any, relation: Relation) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

    margin = (relation.x[-1] / relation.x[0]) ** 0.08
    x = np.geomspace(relation.x[0] / margin, relation.x[-1] * margin, 100)
    for form, fit in relation.fits.items():
        colour = COLOURS[form]
        axes.plot(
            x, fit.law(x), color=colour, linewidth=1.4, label=f"{form}: {format_interval(fit.exponent)}", zorder=2
        )
        axes.fill_between(x, *interval(fit.draws(x)), color=colour, alpha=0.15, linewidth=0, zorder=1)
    seed_losses = relation.seed_losses or [each[None] for each in relation.loss]
    for x_value, losses in zip(relation.x, seed_losses, strict=True):
        axes.plot([x_value] * len(losses), losses, "o", color=POINT, alpha=0.7, markersize=4.5, markeredgewidth=0)
    name, description = relation.quantity.name, relation.quantity.description
    axes.set(xscale="log", yscale="log", xlabel=f"{name}, {description}", ylabel="validation loss, nats a token")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 3)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_si(value)))
    axes.xaxis.set_minor_formatter(NullFormatter())
    # within one decade a logarithmic axis would have a single label
    axes.yaxis.set_major_locator(MaxNLocator(6))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter("{x:.3g}")
    low, high = relation.loss.min(), relation.loss.max()
    axes.set_xlim(x[0], x[-1])
    axes.set_ylim(low * (low / high) ** 0.15, high * (high / low) ** 0.15)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, title=f"exponent of {name} (Kaplan: {relation.quantity.published:.3f})", title_fontsize=8)
