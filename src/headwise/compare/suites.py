"""Several comparisons as one: the same arms on different tasks, in one table and one picture of quality against cost.

What an arm costs is its time for a token in training over that of the table's first arm: measured, at the lengths of
the task, and free of units, so that tables can stand side by side.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from headwise.compare import render
from headwise.compare.cell import cells
from headwise.compare.config import Suite
from headwise.compare.estimate import estimate
from headwise.compare.labels import label, spread
from headwise.compare.plot import DOT, INTERVAL, TICK, plot
from headwise.compare.run import RUNS, compare
from headwise.compare.values import Comparison
from headwise.errors import UserError
from headwise.inspect.files import check_ending, figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.text import Annotation

Found = Mapping[str, Comparison]  # by the table's name in the suite


def compare_all(
    suite: Suite, runs: str | Path = RUNS, *, jobs: int = 0, parts: Iterable[str | Path] = ()
) -> dict[str, Comparison]:
    """Run what is missing of every table, one table after the other."""
    for config in suite.tables.values():
        list(cells(config, runs))  # a mistake in the last table is told now, and not after hours of training
    return {name: compare(config, runs, jobs=jobs, parts=parts) for name, config in suite.tables.items()}


def cost(comparison: Comparison, arm: str) -> float | None:
    """An arm's time for a token over that of the first arm; None where either was not measured."""
    first, own = (_speed(comparison, name) for name in (next(iter(comparison.arms)), arm))
    return first / own if first and own else None


def show(title: str, found: Found, form: str) -> None:
    """Print one comparison as ever, several in one table."""
    if len(found) == 1:
        (only,) = found.values()
        render.FORMATS[form](only)
    elif form == "json":
        told = {"title": title, "tables": {name: render.to_json(each) for name, each in found.items()}}
        print(json.dumps(told, indent=1))
    else:
        printed = {"text": render.print_text, "markdown": render.print_markdown}[form]
        printed(title, rows(found), notes(found))


def rows(found: Found) -> list[list[str]]:
    """The header, and a row an arm: of each table its decisive score and its cost; then what others published."""
    header = ["arm", *(cell for name, each in found.items() for cell in (f"{name}: {each.score}", "cost")), "published"]
    best = {name: render.best(each) for name, each in found.items()}
    grid = [header]
    for arm in dict.fromkeys(arm for each in found.values() for arm in each.arms):
        row = [arm]
        for name, each in found.items():
            score = render.shown(estimate(each, arm, each.score)) if arm in each.arms else ""
            spent = cost(each, arm) if arm in each.arms else None
            row += [score + (" *" if score and arm == best[name] else ""), f"{spent:.2f}" if spent else ""]
        own = [
            f"{name} {told}"
            for name, each in found.items()
            if arm in each.arms and (told := render.published(each.arms[arm].published, each.score))
        ]
        grid.append([*row, "; ".join(own)])
    return grid


def notes(found: Found) -> list[str]:
    """What the table does not say by itself."""
    first = next(iter(next(iter(found.values())).arms), "")
    told = [
        f"cost: time for {article(next(iter(found.values())).unit)} in training, {first} = 1",
        "* best of its column; ± 95 %: Student's t over seeds, bootstrap over the test items where there is one seed",
    ]
    told += [f"{name}: {each.title}" for name, each in found.items()]
    told += [f"{name}: {failure}" for name, each in found.items() for failure in render.failures(each)]
    told += [
        f"{name}: {each.name} {render.published(each, comparison.score)}"
        for name, comparison in found.items()
        for each in comparison.published
    ]
    return told


def draw(title: str, found: Found, out: Path | str) -> Path:
    """One comparison as a dot plot, several as quality against cost; the ending of `out` decides the format."""
    if len(found) == 1:
        (only,) = found.values()
        return plot(only, out)
    out = Path(out)
    check_ending(out, ".svg", ".png")
    drawn = {name: each for name, each in found.items() if any(cost(each, arm) for arm in each.arms)}
    if not drawn:
        raise UserError(f"{out}: nothing is drawn, as no arm has a score and a speed")
    across = min(len(drawn), 2)
    down = -(-len(drawn) // across)
    with figure(out, 6 * across, 0.6 + 4.2 * down) as page:
        page.suptitle(title)
        panels = [
            _panel(page.add_subplot(down, across, number), name, each)
            for number, (name, each) in enumerate(drawn.items(), 1)
        ]
        page.draw_without_rendering()
        for axes, labels in panels:
            spread(axes, labels)
    return out


def _panel(axes: Axes, name: str, comparison: Comparison) -> tuple[Axes, list[Annotation]]:
    """A point an arm with its interval: further left is cheaper, further up is better."""
    from matplotlib.ticker import MaxNLocator

    score, first, labels = comparison.score, next(iter(comparison.arms)), []
    for arm in comparison.arms:
        spent, quality = cost(comparison, arm), estimate(comparison, arm, score)
        if not spent or not quality:
            continue
        colour = TICK if arm == first else DOT
        axes.plot([spent, spent], [quality.low, quality.high], color=INTERVAL, linewidth=1, alpha=0.5)
        axes.plot([spent], [quality.mean], "o", color=colour, markersize=6)
        labels.append(label(axes, arm, (spent, quality.mean), colour))
    better = {None: "", True: ", lower is better", False: ", higher is better"}[comparison.lower]
    axes.set_xscale("log", base=2)
    costs = [spent for arm in comparison.arms if (spent := cost(comparison, arm))]
    if max(costs) < 4 * min(costs):  # powers of two would mark hardly any place
        axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set(xlabel=f"cost of {article(comparison.unit)} in training, {first} = 1", ylabel=score + better, title=name)
    axes.margins(0.18, 0.1)
    if comparison.lower:
        axes.invert_yaxis()
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    return axes, labels


def article(unit: str) -> str:
    """
    >>> article("token"), article("image")
    ('a token', 'an image')
    """
    return f"{'an' if unit[0] in 'aeiou' else 'a'} {unit}"


def _speed(comparison: Comparison, arm: str) -> float | None:
    outcomes = comparison.arms[arm].outcomes.values()
    found = [each.tokens_per_second for each in outcomes if each.tokens_per_second]
    return fmean(found) if found else None
