"""`headwise runs`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from headwise.cli.common import Json, printable, say
from headwise.errors import UserError


def runs(
    *paths: Path,
    compare: Annotated[bool, Parameter(negative="", help="Show the settings in which the runs differ.")] = False,
    plot: Annotated[Path | None, Parameter(help="Draw their curves to this .png or .svg.")] = None,
    over: Annotated[Literal["step", "minutes", "epoch"], Parameter(help="The curves' horizontal axis.")] = "step",
    json_: Json = False,
) -> None:
    """List, compare and plot runs.

    For example:

        headwise runs
        headwise runs runs/a runs/b --compare
        headwise runs runs/* --plot curves.png --over minutes

    Parameters
    ----------
    paths
        Run folders, or folders that hold runs; `runs` by default.
    """
    from headwise.runs import Run, find_runs, summarize_run
    from headwise.runs.metrics import to_json_values

    found: list[Run] = []
    for path in paths or (Path("runs"),):
        if not path.is_dir():
            raise UserError(f"{path}: there is no such folder; train something first, or name the folder of your runs")
        found += [Run.open(path)] if (path / "config.toml").is_file() else find_runs(path)
    if not found:
        raise UserError(f"{' '.join(map(str, paths)) or 'runs'}: no run is in there yet; try `headwise demo`")
    summaries = [summarize_run(run) for run in found]
    listed = list(zip(found, summaries, strict=True))
    if json_:
        print(json.dumps([to_json_values({**asdict(each), "path": str(run.path)}) for run, each in listed]))
    else:
        _print_table(summaries)
    for each in summaries:
        if each.problem:
            say(f"headwise: {printable(each.problem)}")
    sound = [run for run, each in listed if not each.problem]
    if compare and not json_:
        _print_differences(sound)
    if plot:
        from headwise.runs.plot import plot_runs as draw

        say(f"curves are in {draw(sound, plot, over)}")


def _print_table(summaries: list[Any]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold")
    table.add_column("run", style="cyan")
    for title in ("steps", "epochs", "minutes", "best", ""):
        table.add_column(title, justify="right")
    table.add_column("created")
    for each in summaries:
        best = "" if each.best is None else f"{each.best:.4g}"
        state = "damaged" if each.problem else "training" if each.busy else ""
        cells = (
            each.name, f"{each.steps:,}", str(each.epochs), f"{each.minutes:.1f}",
            f"{each.score} {best}".strip(), state, each.created.replace("T", " ")[:16],
        )  # fmt: skip
        table.add_row(*(Text(printable(cell)) for cell in cells))
    Console().print(table)


def _print_differences(found: list[Any]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from headwise.runs.differences import find_differences

    table = Table(box=None, header_style="bold", title="settings that differ", title_justify="left")
    table.add_column("key", style="cyan")
    for run in found:
        table.add_column(Text(printable(run.name)))
    for key, values in find_differences([run.config for run in found]).items():
        table.add_row(*(Text(printable(cell)) for cell in (key, *("-" if v is None else str(v) for v in values))))
    Console().print(table)
