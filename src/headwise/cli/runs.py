"""`headwise runs`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from headwise.cli.common import Json, make_printable, say
from headwise.errors import UserError


def runs(
    *paths: Path,
    compare: Annotated[bool, Parameter(negative="", help="Show the settings that differ between the runs.")] = False,
    plot: Annotated[Path | None, Parameter(help="Plot training curves to this .png or .svg.")] = None,
    over: Annotated[Literal["step", "minutes", "epoch"], Parameter(help="The x axis of the plot.")] = "step",
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
        Run folders, or folders of runs; `runs` by default.
    """
    from headwise.runs import Run, find_runs, summarize_run
    from headwise.runs.metrics import to_json_values

    opened: list[Run] = []
    for path in paths or (Path("runs"),):
        if not path.is_dir():
            raise UserError(f"{path}: there is no such folder; train a model first, or name the folder of your runs")
        opened += [Run.open(path)] if (path / "config.toml").is_file() else find_runs(path)
    if not opened:
        raise UserError(f"{' '.join(map(str, paths)) or 'runs'}: there is no run here yet; try `headwise demo`")
    summaries = [summarize_run(run) for run in opened]
    listed = list(zip(opened, summaries, strict=True))
    if json_:
        print(json.dumps([to_json_values({**asdict(summary), "path": str(run.path)}) for run, summary in listed]))
    else:
        _print_table(summaries)
    for summary in summaries:
        if summary.problem:
            say(f"headwise: {make_printable(summary.problem)}")
    readable = [run for run, summary in listed if not summary.problem]
    if compare and not json_:
        _print_differences(readable)
    if plot:
        from headwise.runs.plot import plot_runs

        say(f"plot: {plot_runs(readable, plot, over)}")


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
        table.add_row(*(Text(make_printable(cell)) for cell in cells))
    Console().print(table)


def _print_differences(runs: list[Any]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from headwise.runs.differences import find_differences

    table = Table(box=None, header_style="bold", title="settings that differ", title_justify="left")
    table.add_column("key", style="cyan")
    for run in runs:
        table.add_column(Text(make_printable(run.name)))
    for key, values in find_differences([run.config for run in runs]).items():
        table.add_row(*(Text(make_printable(cell)) for cell in (key, *("-" if v is None else str(v) for v in values))))
    Console().print(table)
