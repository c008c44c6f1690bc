"""Suites: the same arms on different tasks, in one table and one plot of quality against cost.

The cost of an arm is its training time per token relative to the table's first arm, measured at the lengths of the
task; having no unit, it can be compared between tables.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from headwise.compare import by_table, joined, render
from headwise.compare.analysis import describe_analysis
from headwise.compare.cell import build_cells
from headwise.compare.config import Suite
from headwise.compare.estimate import estimate_score
from headwise.compare.labels import add_label, place_labels
from headwise.compare.plot import DOT, INTERVAL, TICK, plot_comparison
from headwise.compare.plot_published import plot_published
from headwise.compare.records import Records
from headwise.compare.run import RUNS, Stopped, compare, find_outcome, load_comparison
from headwise.compare.values import Comparison
from headwise.errors import UserError
from headwise.inspect.files import check_ending, open_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.text import Annotation

Comparisons = Mapping[str, Comparison]  # by the table's name in the suite
NO_AVERAGE: Mapping[str, Sequence[str]] = {}


def compare_all(suite: Suite, runs: str | Path = RUNS, *, jobs: int = 0) -> dict[str, Comparison]:
    """Run the missing cells of every table, one after the other. `Stopped` has what had finished of all tables."""
    needed = {  # a mistake in the last table is reported now, not after hours of training
        cell.start.id
        for config in suite.tables.values()
        for records in [Records.read(config.records)]
        for cell in build_cells(config, runs)
        if cell.start and not find_outcome(cell, records)
    }
    results: dict[str, Comparison] = {}
    for name, config in suite.tables.items():
        try:
            results[name] = compare(config, runs, jobs=jobs, needed=needed)
        except Stopped as stop:
            (results[name],) = stop.results.values()
            others = {name: each for name, each in suite.tables.items() if name not in results}
            raise Stopped(results | {name: load_comparison(each, runs, {}) for name, each in others.items()}) from None
    return results


def relative_cost(comparison: Comparison, arm: str) -> float | None:
    """An arm's training time per token relative to the first arm; None if either was not measured."""
    first, other = (_mean_speed(comparison, name) for name in (next(iter(comparison.arms)), arm))
    return first / other if first and other else None


def compute_average(comparisons: Comparisons, arm: str, average: Mapping[str, Sequence[str]]) -> float | None:
    """The mean over tables of the mean of their scores, for an arm; None if it lacks one of them."""
    means = []
    for name, scores in average.items():
        comparison = comparisons[name]
        estimates = [estimate_score(comparison, arm, score) if arm in comparison.arms else None for score in scores]
        values = [estimate.mean for estimate in estimates if estimate]
        if len(values) < len(scores):
            return None
        means.append(fmean(values))
    return fmean(means) if means else None


def print_suite(suite: Suite, comparisons: Comparisons, format: str) -> None:
    """Print one comparison as its own table, several in one table."""
    title, average = suite.title or suite.name, suite.average
    if len(comparisons) == 1:
        (only,) = comparisons.values()
        render.FORMATS[format](only)
    elif format == "json":
        data = {
            "title": title,
            "tables": {name: render.to_json(comparison) for name, comparison in comparisons.items()},
        }
        if average:
            data["average"] = {arm: compute_average(comparisons, arm, average) for arm in list_arms(comparisons)}
        print(json.dumps(data, indent=1))
    else:
        print_table = {"text": render.print_text_table, "markdown": render.print_markdown_table}[format]
        if suite.by_table:
            grid = by_table.build_rows(comparisons, suite.by_table)
            notes = by_table.build_notes(comparisons, suite.by_table)
        elif suite.main:
            grid, notes = joined.build_rows(comparisons, suite.main), joined.build_notes(comparisons, suite.main)
        else:
            grid, notes = build_rows(comparisons, average), build_notes(comparisons, average)
        print_table(title, grid, notes)


def list_arms(comparisons: Comparisons) -> list[str]:
    """The arms of all tables."""
    return list(dict.fromkeys(arm for comparison in comparisons.values() for arm in comparison.arms))


def build_rows(comparisons: Comparisons, average: Mapping[str, Sequence[str]] = NO_AVERAGE) -> list[list[str]]:
    """The header, and a row per arm: ranking score and cost in each table, the average if there is one, then published
    figures."""
    header = [
        "arm",
        *(cell for name, comparison in comparisons.items() for cell in (f"{name}: {comparison.score}", "cost")),
        *(["average"] if average else []),
        "published",
    ]
    best = {name: render.best_arm(comparison) for name, comparison in comparisons.items()}
    grid = [header]
    for arm in list_arms(comparisons):
        row = [arm]
        for name, comparison in comparisons.items():
            score = (
                render.format_estimate(estimate_score(comparison, arm, comparison.score))
                if arm in comparison.arms
                else ""
            )
            cost = relative_cost(comparison, arm) if arm in comparison.arms else None
            row += [score + (" *" if score and arm == best[name] else ""), f"{cost:.2f}" if cost else ""]
        if average:
            mean = compute_average(comparisons, arm, average)
            row.append("" if mean is None else f"{mean:.1f}")
        published = [
            f"{name} {text}"
            for name, comparison in comparisons.items()
            if arm in comparison.arms
            and (text := render.format_published(comparison.arms[arm].published, comparison.score))
        ]
        grid.append([*row, "; ".join(published)])
    return grid


def build_notes(comparisons: Comparisons, average: Mapping[str, Sequence[str]] = NO_AVERAGE) -> list[str]:
    """The notes below the table."""
    first = next(iter(next(iter(comparisons.values())).arms), "")
    notes = [
        f"cost: time for {add_article(next(iter(comparisons.values())).unit)} in training, {first} = 1",
        "* best of its column; ± 95 %: Student's t over seeds, bootstrap over the test items where there is one seed",
    ]
    if average:
        notes.append("average: of " + ", ".join(f"{name} ({' and '.join(scores)})" for name, scores in average.items()))
    notes += [f"{name}: {each.title}" for name, each in comparisons.items()]
    notes += [f"{name}: {line}" for name, each in comparisons.items() for line in describe_analysis(each)]
    notes += [f"{name}: {note}" for name, each in comparisons.items() for note in render.describe_runs(each)]
    notes += [
        f"{name}: {each.name} {render.format_published(each, comparison.score)}"
        for name, comparison in comparisons.items()
        for each in comparison.published
    ]
    return notes


def draw_suite(title: str, comparisons: Comparisons, out: Path | str) -> Path:
    """Comparisons with an analysis as ours against published scores; one without as a dot plot, several as quality
    against cost. The ending of `out` decides the format."""
    if len(comparisons) == 1:
        (only,) = comparisons.values()
        return plot_published([only], out, only.title) if only.analysis.published else plot_comparison(only, out)
    if all(each.analysis.published for each in comparisons.values()):
        return plot_published(list(comparisons.values()), out, title)
    out = Path(out)
    check_ending(out, ".svg", ".png")
    shown = {name: each for name, each in comparisons.items() if any(relative_cost(each, arm) for arm in each.arms)}
    if not shown:
        raise UserError(f"{out}: nothing is drawn, as no arm has a score and a speed")
    across = min(len(shown), 2)
    down = -(-len(shown) // across)
    with open_figure(out, 6 * across, 0.6 + 4.2 * down) as page:
        page.suptitle(title)
        panels = [
            _draw_panel(page.add_subplot(down, across, number), name, each)
            for number, (name, each) in enumerate(shown.items(), 1)
        ]
        page.draw_without_rendering()
        for axes, labels in panels:
            place_labels(axes, labels)
    return out


def _draw_panel(axes: Axes, name: str, comparison: Comparison) -> tuple[Axes, list[Annotation]]:
    """A point per arm with its interval: further left is cheaper, further up is better."""
    from matplotlib.ticker import MaxNLocator

    score, first, labels = comparison.score, next(iter(comparison.arms)), []
    for arm in comparison.arms:
        cost, estimate = relative_cost(comparison, arm), estimate_score(comparison, arm, score)
        if not cost or not estimate:
            continue
        colour = TICK if arm == first else DOT
        axes.plot([cost, cost], [estimate.low, estimate.high], color=INTERVAL, linewidth=1, alpha=0.5)
        axes.plot([cost], [estimate.mean], "o", color=colour, markersize=6)
        labels.append(add_label(axes, arm, (cost, estimate.mean), colour))
    better = {None: "", True: ", lower is better", False: ", higher is better"}[comparison.lower]
    axes.set_xscale("log", base=2)
    costs = [cost for arm in comparison.arms if (cost := relative_cost(comparison, arm))]
    if max(costs) < 4 * min(costs):  # powers of two would give hardly any tick
        axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set(
        xlabel=f"cost of {add_article(comparison.unit)} in training, {first} = 1", ylabel=score + better, title=name
    )
    axes.margins(0.18, 0.1)
    if comparison.lower:
        axes.invert_yaxis()
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    return axes, labels


def add_article(unit: str) -> str:
    """
    >>> add_article("token"), add_article("image")
    ('a token', 'an image')
    """
    return f"{'an' if unit[0] in 'aeiou' else 'a'} {unit}"


def _mean_speed(comparison: Comparison, arm: str) -> float | None:
    outcomes = comparison.arms[arm].outcomes.values()
    speeds = [each.tokens_per_second for each in outcomes if each.tokens_per_second]
    return fmean(speeds) if speeds else None
