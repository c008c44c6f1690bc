"""`headwise place`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from headwise.cli.common import Json, log_to_stderr, say
from headwise.errors import UserError, nearest

if TYPE_CHECKING:
    import numpy as np

    from headwise.placement.graph import OperatorGraph
    from headwise.placement.simulator import Simulator

DEVICES = 4


def place(
    model: str,
    *,
    devices: Annotated[int | None, Parameter(help="Default: those that the graph names, or 4.")] = None,
    memory: Annotated[str, Parameter(help="Memory of each device: 16GB, 512MB, 16GiB.")] = "16GB",
    links: Annotated[str, Parameter(help="Speed of each link between two devices, and its latency.")] = "12GB/s,10us",
    method: Annotated[
        str,
        Parameter(
            help="one-device, round-robin, by-hand, metis, heft, random-search, annealing, brute-force; go or hdp, "
            "which are trained on the graph; or a run folder."
        ),
    ] = "heft",
    calls: Annotated[int, Parameter(help="Simulated placements of a search or a training.")] = 2000,
    rows: Annotated[int, Parameter(help="Batch size of a model of the catalogue.")] = 32,
    length: Annotated[int, Parameter(help="Tokens of each of its texts.")] = 16,
    forward: Annotated[bool, Parameter(negative="", help="A forward pass alone, instead of a training step.")] = False,
    seed: Annotated[int, Parameter(help="Random seed of a search or a training.")] = 1,
    out: Annotated[Path, Parameter(help="The placement file to write.")] = Path("placement.json"),
    plot: Annotated[Path | None, Parameter(help="The timeline: .svg or .png; default: --out with .svg.")] = None,
    graph: Annotated[Path | None, Parameter(help="Write the operator graph of a model to this file, too.")] = None,
    json_: Json = False,
) -> None:
    """Place the operators of a model on devices, and draw the timeline of a training step.

    The step is simulated: equal devices with the speed of a P100, links as given. docs/placing.md describes what the
    simulator counts. Nothing of the model is allocated.

    For example:

        headwise place transformer-base --devices 4 --memory 16GB
        headwise place rnnlm-4 --method annealing --links 50GB/s,5us --plot step.png
        headwise place graph.json --devices 2 --method go --calls 4000 --out placement.json

    Parameters
    ----------
    model
        A model of the catalogue, a graph that comes with Headwise (rnnlm-2, gnmt-4, inception-b32, ...), or a graph
        file (.json).
    """
    log_to_stderr()
    timeline = plot or out.with_suffix(".svg")
    check_numbers(devices, calls, rows, length, out, timeline)
    simulator = build_simulator(load_graph(model, rows, length), devices, memory, links, forward)
    if graph:
        simulator.graph.save(graph)
    placement = find_placement(simulator, method, calls, seed)
    report(simulator, placement, method, out, timeline, json_)


def check_numbers(devices: int | None, calls: int, rows: int, length: int, out: Path, timeline: Path) -> None:
    """Refuse numbers and files that could not be used, before any work is done."""
    from headwise.inspect.files import check_ending

    for name, value in (("--devices", devices), ("--calls", calls), ("--rows", rows), ("--length", length)):
        if value is not None and value < 1:
            raise UserError(f"{name}: there must be at least one, not {value}; give a larger number")
    if devices is not None and devices > 1024:
        raise UserError(f"--devices: there can be 1,024 at most, not {devices:,}; give a smaller number")
    check_ending(out, ".json")
    check_ending(timeline, ".svg", ".png")


def load_graph(name: str, rows: int, length: int) -> OperatorGraph:
    """A graph file, a graph that comes with Headwise, or the traced graph of a model of the catalogue."""
    from headwise import catalog
    from headwise.placement.graph import read_graph
    from headwise.placement.named import list_graphs, load_named

    if name.endswith(".json"):
        return read_graph(Path(name))
    if name in list_graphs():
        return load_named(name)
    try:
        catalog.resolve(name)
    except UserError:
        known = [*list_graphs(), *catalog.CATALOG]
        raise UserError(f"{name}: is neither a model, nor a graph, nor a .json file; {nearest(name, known)}") from None
    from headwise.models.operator_graph import trace_model

    say(f"tracing {name}")
    return trace_model(name, rows=rows, length=length)


def build_simulator(graph: OperatorGraph, devices: int | None, memory: str, links: str, forward: bool) -> Simulator:
    from headwise.placement.cluster import Cluster, parse_bytes, parse_link
    from headwise.placement.config import check_room
    from headwise.placement.simulator import Simulator

    settings: dict[str, Any] = {"memory": parse_bytes(memory, "--memory"), **parse_link(links, "--links")}
    cluster = Cluster(devices=devices or graph.devices or DEVICES, **settings)
    simulator = Simulator(graph, cluster, backward=not forward)
    check_room(simulator)
    return simulator


def find_placement(simulator: Simulator, method: str, calls: int, seed: int) -> np.ndarray:
    from headwise.placement.heuristics import METHODS, Budget

    if method in METHODS:
        return METHODS[method](simulator, Budget(calls, seed))
    from headwise.experiment.learn_placement import POLICIES, learn_placement, place_by_run

    if method in POLICIES:
        if not simulator.has_backward:
            raise UserError(f"--method {method}: is trained on training steps; leave out --forward")
        return learn_placement(simulator, method, calls, seed, say)
    if Path(method).is_dir():
        return place_by_run(simulator, Path(method))
    raise UserError(f"--method {method}: there is no such method, nor a run; {nearest(method, [*METHODS, *POLICIES])}")


def report(simulator: Simulator, placement: np.ndarray, method: str, out: Path, timeline: Path, as_json: bool) -> None:
    """Write the files and say what the step costs; a placement that does not fit is refused."""
    from headwise.inspect.timeline import draw_timeline
    from headwise.placement.cluster import format_bytes
    from headwise.placement.files import describe_placement, write_placement

    described, cluster = describe_placement(simulator, placement, method), simulator.cluster
    memory, seconds = described["memory_bytes"], described["seconds"]
    if not described["fits"]:
        fullest = max(range(len(memory)), key=memory.__getitem__)
        raise UserError(
            f"{simulator.graph.name}: by '{method}', device {fullest} would need {format_bytes(memory[fullest])} of "
            f"its {format_bytes(cluster.memory)}; choose another --method, more --devices or more --memory"
        )
    ratio = described["seconds_on_one_device"] / seconds
    title = f"{simulator.graph.name}, {method}: {1000 * seconds:.4g} ms a step, {ratio:.2f} x one device"
    write_placement(out, described)
    draw_timeline(simulator, placement, timeline, title)
    if as_json:
        print(json.dumps({key: value for key, value in described.items() if key != "placement"} | {"file": str(out)}))
        return
    say(f"{title}, {described['transfers']} transfers; simulated")
    say("memory: " + ", ".join(f"device {number} {format_bytes(value)}" for number, value in enumerate(memory)))
    print(out)
    print(timeline)
