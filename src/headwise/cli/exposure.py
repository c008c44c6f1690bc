"""`headwise exposure`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter, validators

from headwise.cli.common import Checkpoint, DataRoot, Device, Json, Threads, load_model, say

if TYPE_CHECKING:
    from headwise.inspect.exposure import Exposure


def exposure(
    run: Path,
    *,
    out: Annotated[Path | None, Parameter(help="Plot the curves to this .svg or .png.")] = None,
    data: Annotated[
        list[str] | None,
        Parameter(negative="", consume_multiple=True, help="Your own pairs: one TSV, or two aligned files."),
    ] = None,
    most: Annotated[int, Parameter(validator=validators.Number(gte=1), help="Maximum number of texts.")] = 2000,
    data_root: DataRoot = None,
    checkpoint: Checkpoint = "best",
    device: Device = "auto",
    threads: Threads = 0,
    json_: Json = False,
) -> None:
    """Measure exposure bias: the error rate at each output position, after reference tokens (teacher forcing) and after
    the model's own tokens.

    The difference is exposure bias: a model is trained on reference tokens and decodes after its own.
    Without --data: on the experiment's test split, or its validation split if there is no test split.

    For example:

        headwise exposure runs/demo --out exposure.svg
        headwise exposure runs/demo --data held_out.tsv --json
    """
    from headwise.inspect.files import check_ending

    if out:
        check_ending(out, ".svg", ".png")
    loaded = load_model(run, checkpoint, device, threads, data_root)
    from headwise.data.read import read_pairs
    from headwise.inspect.exposure import measure_exposure as measure
    from headwise.inspect.exposure import plot

    pairs = list(read_pairs(tuple(Path(file) for file in data))) if data else ()
    found = measure(loaded, pairs, most)
    print(json.dumps(found.to_json(), indent=1) if json_ else format_table(found))
    if out:
        say(f"picture: {plot(found, out, run.name)}")


def format_table(found: Exposure) -> str:
    """Error rates: a line for each position, and one for all."""
    columns = ("position", "references", "after right tokens", "after own tokens", "had an error")
    curves = (found.forced.values, found.free.values, found.broken.values)
    rows = [*zip(found.positions, found.counts, *curves, strict=True)]
    rows.append(("all", found.counts.sum(), *found.totals.values()))
    lines = ["  ".join(columns)]
    for position, count, *rates in rows:
        cells = (str(position), f"{count:,}", *(f"{100 * rate:.1f} %" for rate in rates))
        lines.append("  ".join(cell.rjust(len(column)) for cell, column in zip(cells, columns, strict=True)))
    return "\n".join(lines)
