"""`headwise exposure`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter, validators

from headwise.cli.common import Checkpoint, Device, Json, Threads, With, opened, say

if TYPE_CHECKING:
    from headwise.inspect.exposure import Exposure


def exposure(
    run: Path,
    *,
    out: Annotated[Path | None, Parameter(help="Draw the curves to this .svg or .png.")] = None,
    data: Annotated[
        list[str] | None, Parameter(negative="", help="Your own pairs: one TSV, or two aligned files.")
    ] = None,
    most: Annotated[int, Parameter(validator=validators.Number(gte=1), help="Follow at most this many texts.")] = 2000,
    checkpoint: Checkpoint = "best",
    device: Device = "auto",
    threads: Threads = 0,
    json_: Json = False,
    with_: With = None,
) -> None:
    """Show how often a run is wrong at each position of its output, after the right tokens and after its own.

    What lies between the two is exposure bias: in training a model reads the right tokens, in use what it wrote.
    Without --data it takes the experiment's test part, or its validation part where there is no test part.

    For example:

        headwise exposure runs/demo --out exposure.svg
        headwise exposure runs/demo --data held_out.tsv --json
    """
    from headwise.inspect.files import check_ending

    if out:
        check_ending(out, ".svg", ".png")
    loaded = opened(run, checkpoint, device, threads, with_)
    from headwise.data.read import read_pairs
    from headwise.inspect.exposure import measure_exposure as follow
    from headwise.inspect.exposure import plot

    pairs = list(read_pairs(tuple(Path(file) for file in data))) if data else ()
    found = follow(loaded, pairs, most)
    print(json.dumps(found.to_json(), indent=1) if json_ else table(found))
    if out:
        say(f"the picture is {plot(found, out, run.name)}")


def table(found: Exposure) -> str:
    """Wrong tokens in per cent: a line for each position, and one for all of them."""
    heads = ("position", "references", "after right tokens", "after own tokens", "had an error")
    curves = (found.forced.values, found.free.values, found.broken.values)
    rows = [*zip(found.positions, found.counts, *curves, strict=True)]
    rows.append(("all", found.counts.sum(), *found.totals.values()))
    lines = ["  ".join(heads)]
    for where, count, *shares in rows:
        cells = (str(where), f"{count:,}", *(f"{100 * share:.1f} %" for share in shares))
        lines.append("  ".join(cell.rjust(len(head)) for cell, head in zip(cells, heads, strict=True)))
    return "\n".join(lines)
