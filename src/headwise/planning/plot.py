"""A plan as a picture: the memory of one device under each strategy, and how fast each is."""

from __future__ import annotations

from pathlib import Path

from headwise.inspect.files import open_figure
from headwise.planning.plan import Plan, list_parts
from headwise.planning.strategies import USABLE, Step

COLOURS = {
    "weights": "#4c6ef5",
    "gradients": "#f08c00",
    "optimiser": "#2f9e44",
    "activations": "#e64980",
    "activations and gradients": "#e64980",
    "gathered": "#868e96",
}
GB = 1e9


def name_step(step: Step) -> str:
    return step.strategy + (" + checkpointing" if step.checkpointing else "")


def plot_plan(plan: Plan, path: Path) -> None:
    """Bars of memory, with the speed beside each bar."""
    count = len(plan.steps)
    with open_figure(path, 9, 1.6 + 0.5 * count) as figure:
        axes = figure.add_subplot()
        left = [0.0] * count
        for part in list_parts(plan.steps):
            widths = [step.memory.get(part, 0.0) / GB for step in plan.steps]
            axes.barh(range(count), widths, 0.6, left, color=COLOURS[part], label=part)
            left = [start + width for start, width in zip(left, widths, strict=True)]
        limit = USABLE * plan.device.memory / GB
        axes.axvline(limit, color="#c92a2a", linestyle="--", linewidth=1.2, label=f"usable: {limit:,.0f} GB")
        most = max(*left, limit)
        for row, (step, end) in enumerate(zip(plan.steps, left, strict=True)):
            said = f"{step.tokens_per_second:,.0f} tokens/s" if step.fits else "does not fit"
            axes.text(end + most / 80, row, said, va="center", fontsize=8.5)
        axes.set_yticks(range(count), [name_step(step) for step in plan.steps])
        axes.invert_yaxis()
        axes.set_xlim(0, 1.25 * most)
        axes.set_xlabel("peak memory of a device, GB")
        axes.set_title(f"{plan.model} on {plan.devices:,} x {plan.device.name}", loc="left", fontsize=11)
        axes.spines[["top", "right"]].set_visible(False)
        figure.legend(fontsize=8, frameon=False, ncols=7, loc="outside lower center")
