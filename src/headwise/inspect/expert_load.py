"""Expert load of mixture-of-experts layers, as a table and as a heat map."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

import numpy as np

from headwise.blocks.evaluation import get_device, inference_mode
from headwise.blocks.experts import ExpertLoad, Experts, merge_loads
from headwise.blocks.record import collect
from headwise.blocks.stream import LayerPath
from headwise.errors import UserError
from headwise.inference.trained_model import TrainedModel
from headwise.inspect.pictures import draw_alignment
from headwise.inspect.svg import Drawing

MAX_SHARES = 16  # shares that fit into a line


def measure_expert_load(loaded: TrainedModel, batches: int = 50) -> dict[str, ExpertLoad]:
    """Measure the expert load of each mixture-of-experts layer on the first validation batches, in evaluation mode."""
    if not any(isinstance(part, Experts) for part in loaded.model.modules()):
        raise UserError("this run's model has no experts; inspect another run")
    experiment, task = loaded.experiment, loaded.task
    prepared = type(task).prepare(loaded.data, loaded.tokenisers)
    data, device = task.build_batches(prepared.valid, experiment.seed, experiment.train), get_device(loaded.model)
    loads: dict[LayerPath, ExpertLoad] = {}
    state = task.init_state(loaded.model)
    with inference_mode(loaded.model):
        for numbers in islice(data.plan(0), batches):
            with collect("load") as collected:
                task.loss(loaded.model, data.batch(numbers).to(device), state)
            loads = merge_loads(loads, collected.values["load"])
    return {format_layer_name(path): load for path, load in loads.items()}


def format_layer_name(path: LayerPath) -> str:
    """Format the path of a layer, counted from one.

    >>> format_layer_name(("encoder", 1, 1))
    'encoder-2'
    """
    return "-".join(str(step + 1 if isinstance(step, int) else step) for step in path[:2]) or "experts"


def to_json(loads: Mapping[str, ExpertLoad]) -> dict[str, dict[str, Any]]:
    fields = ("busiest", "evenness", "dropped", "shares")
    return {name: {field: getattr(load, field) for field in fields} for name, load in loads.items()}


def format_table(loads: Mapping[str, ExpertLoad]) -> str:
    """Format one line per layer: the busiest expert relative to the mean, evenness, dropped tokens, experts' shares."""
    lines = [f"{'layer':<12}{'busiest':>9}{'evenness':>10}{'dropped':>9}   share of each expert, %"]
    for name, load in loads.items():
        shares = " ".join(f"{100 * share:4.1f}" for share in load.shares[:MAX_SHARES])
        more = f" and {len(load.shares) - MAX_SHARES} more" if len(load.shares) > MAX_SHARES else ""
        figures = f"{load.busiest:>8.2f}x{load.evenness:>10.3f}{100 * load.dropped:>7.1f} %"
        lines.append(f"{name:<12}{figures}   {shares}{more}")
    return "\n".join(lines)


def draw_expert_load(loads: Mapping[str, ExpertLoad], title: str) -> Drawing:
    """Draw layers in rows and experts in columns, coloured by their shares of the tokens; the busiest expert of each
    layer is framed."""
    experts = max(len(load.shares) for load in loads.values())
    shares = np.array([[*load.shares, *[0.0] * (experts - len(load.shares))] for load in loads.values()])
    assigned = sum(int(load.assigned.sum()) for load in loads.values())
    note = f"share of a layer's tokens routed to an expert, {assigned:,} choices in all; uniform is {1 / experts:.3g}"
    return draw_alignment(shares, [str(number + 1) for number in range(experts)], list(loads), title, note)
