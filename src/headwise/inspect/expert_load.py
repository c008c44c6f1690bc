"""How busy the experts of each layer are, as a table and as a heat map."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

import numpy as np

from headwise.blocks.evaluation import get_device, inference_mode
from headwise.blocks.experts import ExpertLoad, Experts, added
from headwise.blocks.record import collect
from headwise.blocks.stream import LayerPath
from headwise.errors import UserError
from headwise.inference.trained_model import TrainedModel
from headwise.inspect.pictures import alignment
from headwise.inspect.svg import Drawing

MOST = 16  # experts whose shares a line has room for


def loads(loaded: TrainedModel, batches: int = 50) -> dict[str, ExpertLoad]:
    """The loads of all layers with experts, by name, over the first batches of the validation part: as in training, but
    in evaluation mode."""
    if not any(isinstance(part, Experts) for part in loaded.model.modules()):
        raise UserError("this run's model has no experts; inspect another run")
    experiment, task = loaded.experiment, loaded.task
    prepared = type(task).prepare(experiment.data, loaded.tokenisers)
    data, device = task.build_batches(prepared.valid, experiment.seed, experiment.train), get_device(loaded.model)
    found: dict[LayerPath, ExpertLoad] = {}
    state = task.init_state(loaded.model)
    with inference_mode(loaded.model):
        for numbers in islice(data.plan(0), batches):
            with collect("load") as side:
                task.loss(loaded.model, data.batch(numbers).to(device), state)
            found = added(found, side.values["load"])
    return {named(path): load for path, load in found.items()}


def named(path: LayerPath) -> str:
    """A layer as people count.

    >>> named(("encoder", 1, 1))
    'encoder-2'
    """
    return "-".join(str(step + 1 if isinstance(step, int) else step) for step in path[:2]) or "experts"


def to_json(found: Mapping[str, ExpertLoad]) -> dict[str, dict[str, Any]]:
    figures = ("busiest", "evenness", "dropped", "shares")
    return {name: {figure: getattr(load, figure) for figure in figures} for name, load in found.items()}


def table(found: Mapping[str, ExpertLoad]) -> str:
    """A line for each layer: its longest queue in means of all, evenness, what was dropped, and the experts' shares."""
    lines = [f"{'layer':<12}{'busiest':>9}{'evenness':>10}{'dropped':>9}   share of each expert, %"]
    for name, load in found.items():
        shares = " ".join(f"{100 * share:4.1f}" for share in load.shares[:MOST])
        more = f" and {len(load.shares) - MOST} more" if len(load.shares) > MOST else ""
        figures = f"{load.busiest:>8.2f}x{load.evenness:>10.3f}{100 * load.dropped:>7.1f} %"
        lines.append(f"{name:<12}{figures}   {shares}{more}")
    return "\n".join(lines)


def picture(found: Mapping[str, ExpertLoad], title: str) -> Drawing:
    """Layers downwards, experts across, coloured by their shares of the tokens; the busiest of each layer is framed."""
    most = max(len(load.shares) for load in found.values())
    shares = np.array([[*load.shares, *[0.0] * (most - len(load.shares))] for load in found.values()])
    claims = sum(int(load.claims.sum()) for load in found.values())
    note = (
        f"share of the tokens of a layer that choose an expert, {claims:,} choices in all; even would be {1 / most:.3g}"
    )
    return alignment(shares, [str(number + 1) for number in range(most)], list(found), title, note)
