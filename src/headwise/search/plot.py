"""A search as a picture: the score of every trial with the best so far, and the importance of every key."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path

from headwise.compare.plot import DOT, INTERVAL, TICK
from headwise.errors import UserError
from headwise.inspect.files import check_ending, open_figure
from headwise.search.values import SearchResult


def plot_search(result: SearchResult, out: Path | str) -> Path:
    """Draw history and importances; the ending of `out` decides the format: .png or .svg."""
    out = Path(out)
    check_ending(out, ".svg", ".png")
    points = {
        state: [
            (trial.number, trial.score) for trial in result.trials if trial.state == state and trial.score is not None
        ]
        for state in ("complete", "pruned")
    }
    if not points["complete"]:
        raise UserError(f"{out}: nothing is drawn, as no trial has a score")
    with open_figure(out, 10, 4) as page:
        history, importance = page.subplots(1, 2)
        numbers, scores = zip(*points["complete"], strict=True)
        history.plot(numbers, scores, "o", color=DOT, alpha=0.6, markersize=7, markeredgewidth=0, label="complete")
        if points["pruned"]:
            history.plot(*zip(*points["pruned"], strict=True), "x", color=TICK, markersize=6, label="pruned")
        best = list(accumulate(scores, min if result.lower else max))
        history.step(numbers, best, where="post", color=INTERVAL, linewidth=1.5, label="best so far")
        better = "lower" if result.lower else "higher"
        history.set(title=result.name, xlabel="trial", ylabel=f"{result.score}, {better} is better")
        history.xaxis.get_major_locator().set_params(integer=True)  # trials are counted
        history.grid(alpha=0.3)
        history.legend(fontsize="small")
        keys = sorted(result.importances, key=lambda key: result.importances[key])
        bars = importance.barh(range(len(keys)), [result.importances[key] for key in keys], color=DOT, height=0.6)
        importance.bar_label(bars, [f"{result.importances[key]:.0%}" for key in keys], padding=4)
        importance.set_yticks(range(len(keys)), keys)
        title = "importance" if keys else "importance: too few complete trials"
        importance.set(title=title, xlabel="PED-ANOVA, sums to 1", xlim=(0, 1.08), ylim=(-0.7, max(len(keys), 1) - 0.3))
        importance.grid(axis="x", alpha=0.3)
        importance.tick_params(left=False)
        for axes in (history, importance):
            axes.set_axisbelow(True)  # the grid
            axes.spines[["top", "right"]].set_visible(False)
    return out
