"""The timeline of a training step: what each device computes when, and what is sent between devices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.collections import LineCollection

from headwise.inspect.files import open_figure
from headwise.placement.cluster import format_bytes
from headwise.placement.simulator import Simulator

FORWARD, BACKWARD, TRANSFER = "#4477aa", "#ee8866", "#777777"
HEIGHT = 0.6  # of a device's bar, between rows at distance 1
GAP = 0.001  # of the step, between bars


def draw_timeline(simulator: Simulator, placement: np.ndarray, path: Path, title: str) -> Path:
    """Draw the step of a placement: a row of operators for each device, a line for each transfer."""
    schedule = simulator.simulate(placement[None])
    runtime, step = float(schedule.runtime[0]), simulator.step
    memory = schedule.measure_memory()[0]
    scale, unit = (1e3, "ms") if runtime < 10 else (1.0, "s")
    with open_figure(path, 10, 1.3 + 0.55 * simulator.devices) as figure:
        axes = figure.add_subplot()
        forward = np.arange(len(step.nodes)) < step.forward
        for device in range(simulator.devices):
            for passes, colour in ((forward, FORWARD), (~forward, BACKWARD)):
                here = np.nonzero((schedule.devices[0] == device) & passes)[0]
                seconds = np.maximum(step.seconds[here] - GAP * runtime, 0.5 * step.seconds[here])
                bars = np.column_stack([schedule.start[0, here], seconds]) * scale
                axes.broken_barh([tuple(bar) for bar in bars], (device - HEIGHT / 2, HEIGHT), color=colour, linewidth=0)
        lines = [
            [(each.start * scale, leave(each.device, each.target)), (each.end * scale, leave(each.target, each.device))]
            for each in schedule.list_transfers()
        ]
        axes.add_collection(LineCollection(lines, colors=TRANSFER, linewidths=0.7, alpha=0.6))
        axes.set_yticks(
            range(simulator.devices),
            [f"device {each}\n{format_bytes(memory[each])}" for each in range(simulator.devices)],
        )
        axes.set(xlim=(0, runtime * scale), ylim=(simulator.devices - 0.5, -0.5), xlabel=unit, title=title)
        handles: list[Any] = [axes.barh(-9, 0, color=colour) for colour in (FORWARD, BACKWARD)]
        handles += axes.plot([], [], color=TRANSFER)
        figure.legend(handles, ["forward", "backward", "transfer"], loc="outside lower center", ncols=3, frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
    return path


def leave(device: int, other: int) -> float:
    """Where a transfer leaves or reaches the row of a device."""
    return device + (HEIGHT / 2 if other > device else -HEIGHT / 2)
