"""Returns that an agent was asked for and those that it achieved, as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from headwise.errors import UserError
from headwise.inspect.files import open_figure

if TYPE_CHECKING:
    from headwise.tasks.base import Evaluation


def plot_returns(evaluation: Evaluation, path: Path, title: str) -> Path:
    """Plot each episode's return over what was asked for, with the mean of each and the line where both are equal."""
    if not all(evaluation.sources):
        raise UserError(
            "--by-return: this run is asked for no return, as it clones; name one with task.condition = 'return'"
        )
    asked, achieved = (np.array(texts, float) for texts in (evaluation.sources, evaluation.outputs))
    targets = np.unique(asked)
    means = [achieved[asked == target].mean() for target in targets]
    with open_figure(path, 5.5, 4.5) as figure:
        axes = figure.add_subplot()
        axes.axline((targets[0], targets[0]), slope=1, color="0.6", linestyle=":", label="as asked")
        spread = (targets[-1] - targets[0]) / 100 * np.random.default_rng(0).uniform(-1, 1, len(asked))
        axes.plot(asked + spread, achieved, "o", color="tab:blue", alpha=0.35, markersize=4, label="an episode")
        axes.plot(targets, means, "o-", color="tab:red", label="mean")
        axes.set(xlabel="return asked for", ylabel="return achieved", title=title)
        axes.legend(frameon=False)
    return path
