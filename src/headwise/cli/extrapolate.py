"""`headwise extrapolate`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter, validators

from headwise.cli.common import Checkpoint, DataRoot, Device, Json, Threads, load_model, say

if TYPE_CHECKING:
    from headwise.inspect.extrapolate import PositionBin


def extrapolate(
    *runs: Path,
    times: Annotated[
        int, Parameter(validator=validators.Number(gte=1), help="Maximum length, as a multiple of the context.")
    ] = 4,
    out: Annotated[Path | None, Parameter(help="Plot the curves to this .svg or .png.")] = None,
    data_root: DataRoot = None,
    checkpoint: Checkpoint = "best",
    device: Device = "auto",
    threads: Threads = 0,
    json_: Json = False,
) -> None:
    """Measure length extrapolation: the loss of language models at positions beyond the training context.

    Reads the test split of their experiments, or the validation split if there is none, in windows of several times the
    training context. Learned position embeddings end with their table.

    For example:

        headwise extrapolate runs/rotary runs/alibi runs/sinusoid --out extrapolation.svg
        headwise extrapolate runs/compare/extrapolation/*-1 --times 4 --json

    Parameters
    ----------
    runs
        Run folders of language models with the same context.
    """
    from headwise.errors import UserError
    from headwise.inspect.files import check_ending

    if not runs:
        raise UserError("name at least one run of a language model")
    if out:
        check_ending(out, ".svg", ".png")
    found: dict[str, list[PositionBin]] = {}
    contexts = set()
    for run in runs:
        loaded = load_model(run, checkpoint, device, threads, data_root)
        contexts.add(loaded.check_task("language-model").config.context)
        if len(contexts) > 1:
            raise UserError(
                f"{run}: was trained with another context than the runs before it; name runs with one context"
            )
        from headwise.data.examples import Examples, tokenise
        from headwise.inspect.extrapolate import extrapolate as measure

        examples = Examples.from_rows(tokenise(loaded.held_out(), loaded.tokenisers))
        found[run.name] = measure(loaded, examples, times)
    if json_:
        print(json.dumps({name: [span.to_json() for span in spans] for name, spans in found.items()}, indent=1))
    else:
        print(format_table(found))
    if out:
        from headwise.inspect.extrapolate import plot

        say(f"picture: {plot(found, contexts.pop(), out)}")


def format_table(found: dict[str, list[PositionBin]]) -> str:
    """Loss in nats per token: a line for each range of positions, a column for each run."""
    places = sorted({(span.low, span.high) for spans in found.values() for span in spans})
    lines = ["  ".join(["positions".ljust(12), *(name.rjust(max(len(name), 6)) for name in found)])]
    for low, high in places:
        cells = [f"{low}-{high - 1}".ljust(12)]
        for name, spans in found.items():
            nll = next((f"{span.nll:.3f}" for span in spans if span.low == low), "-")
            cells.append(nll.rjust(max(len(name), 6)))
        lines.append("  ".join(cells))
    return "\n".join(lines)
