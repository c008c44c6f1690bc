"""A comparison as a dot plot: a point per seed, an interval per arm, published figures as ticks."""

from __future__ import annotations

from pathlib import Path

from headwise.compare.config import Published
from headwise.compare.estimate import estimate_score
from headwise.compare.values import Comparison
from headwise.errors import UserError
from headwise.inspect.files import check_ending, open_figure

DOT, INTERVAL, TICK = "#4c78a8", "#1f3a5f", "#d1495b"


def plot_comparison(comparison: Comparison, out: Path | str) -> Path:
    """Draw the ranking score of all arms; the ending of `out` decides the format: .png or .svg."""

    out, score = Path(out), comparison.score
    check_ending(out, ".svg", ".png")
    if not score:
        raise UserError(f"{out}: nothing is drawn, as no arm has a score")
    # an arm's row, with its published figure in it; rows of published figures alone below
    rows = [(arm.name, arm.published) for arm in comparison.arms.values()]
    rows += [(each.name, each) for each in comparison.published if score in each.scores]
    with open_figure(out, 8, 1.4 + 0.45 * len(rows)) as page:
        axes = page.subplots()
        for y, (name, published) in enumerate(rows):
            if name in comparison.arms:
                values = [o.scores[score].value for o in comparison.arms[name].outcomes.values() if score in o.scores]
                axes.plot(values, [y] * len(values), "o", color=DOT, alpha=0.6, markersize=7, markeredgewidth=0)
                if estimate := estimate_score(comparison, name, score):
                    axes.plot([estimate.low, estimate.high], [y, y], color=INTERVAL, linewidth=1.5)
                    axes.plot([estimate.mean], [y], "|", color=INTERVAL, markersize=14, markeredgewidth=2)
            if score in published.scores:
                value = published.scores[score]
                axes.plot([value], [y], "|", color=TICK, markersize=14, markeredgewidth=2)
                axes.annotate(_label(published, value), (value, y), (0, 9), textcoords="offset points", ha="center",
                              fontsize=7, color=TICK)  # fmt: skip
        axes.set_yticks(range(len(rows)), [name for name, _ in rows])
        axes.set_ylim(len(rows) - 0.4, -0.7)
        better = {None: "", True: ", lower is better", False: ", higher is better"}[comparison.lower]
        axes.set(xlabel=score + better, title=comparison.title)
        axes.margins(x=0.12)
        axes.grid(axis="x", alpha=0.3)
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.tick_params(left=False)
    return out


def _label(published: Published, value: float) -> str:
    return f"{value:g} {published.source}".strip()
