"""`headwise runs`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import App, Parameter

from headwise.cli.common import DataRoot, Json, make_printable, say
from headwise.errors import UserError
from headwise.utils.console import make_console

app = App(name="runs")


@app.default
def runs(
    *paths: Path,
    compare: Annotated[bool, Parameter(negative="", help="Show the settings that differ between the runs.")] = False,
    plot: Annotated[Path | None, Parameter(help="Plot training curves to this .png or .svg.")] = None,
    over: Annotated[Literal["step", "minutes", "epoch"], Parameter(help="The x axis of the plot.")] = "step",
    json_: Json = False,
) -> None:
    """List, compare and plot runs; copy, archive, unpack and remove them.

    For example:

        headwise runs
        headwise runs runs/a runs/b --compare
        headwise runs runs/* --plot curves.png --over minutes
        headwise runs archive runs/a a.zip --data
        headwise runs remove --help

    Parameters
    ----------
    paths
        Run folders, or folders of runs; `runs` by default.
    """
    from headwise.inspect.files import check_ending
    from headwise.runs import Run, find_runs, summarize_run
    from headwise.runs.metrics import to_json_values

    if plot:
        check_ending(plot, ".svg", ".png")
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


@app.command
def copy(run: Path, new: Path) -> None:
    """Copy a run to a new folder, such as before it is trained longer.

    For example:

        headwise runs copy runs/words runs/words-longer

    Parameters
    ----------
    run
        A run folder.
    new
        The folder of the copy, which must not exist.
    """
    from headwise.runs import Run
    from headwise.runs.archive import copy_run

    print(copy_run(Run.open(run), new).path)


@app.command
def archive(
    run: Path,
    file: Path,
    *,
    data: Annotated[bool, Parameter(negative="", help="Store the data files, too.")] = False,
    data_root: DataRoot = None,
) -> None:
    """Write a run to one zip, which `headwise runs unpack` opens on another machine.

    It holds the files that training writes, with the SHA-256 of each. A corpus by name stays a name.

    For example:

        headwise runs archive runs/words words.zip
        headwise runs archive runs/words words.zip --data

    Parameters
    ----------
    run
        A run folder.
    file
        The zip, which must not exist.
    """
    from headwise.runs import Run
    from headwise.runs.archive import archive_run

    opened = Run.open(run)
    left_out = archive_run(opened, file, _list_data(opened, data_root) if data else None)
    if left_out:
        say(f"left out, as training did not write them: {make_printable(', '.join(left_out))}")
    print(file)


@app.command
def unpack(file: Path, folder: Path = Path("runs")) -> None:
    """Unpack an archived run. The zip may come from anybody: names, links, sizes and digests are checked.

    For example:

        headwise runs unpack words.zip
        headwise runs unpack words.zip other-runs

    Parameters
    ----------
    file
        A zip that `headwise runs archive` wrote.
    folder
        The folder of runs that it becomes a part of.
    """
    from headwise.runs.archive import unpack as unpack_run

    print(unpack_run(file, folder).path)


@app.command
def remove(
    run: Path, *, yes: Annotated[bool, Parameter(negative="", help="Delete it; without this, nothing is done.")] = False
) -> None:
    """Delete a run folder; one that is being trained is refused.

    For example:

        headwise runs remove runs/words
        headwise runs remove runs/words --yes

    Parameters
    ----------
    run
        A run folder.
    """
    from headwise.runs import Run
    from headwise.runs.archive import remove_run

    remove_run(Run.open(run), yes)
    say(f"removed {run}")


def _list_data(run: Any, data_root: Path | None) -> dict[str, Path]:
    from headwise.data.locate import list_data_files
    from headwise.experiment.config import parse_experiment
    from headwise.runs.data_record import read_record

    data = parse_experiment(run.config, str(run.path / "config.toml")).data
    record = read_record(run)
    if not data.name and not record.files:
        raise UserError(f"--data: {run.path} has no record of its data files; leave it out, and copy them yourself")
    return list_data_files(data, run.path, record, data_root or "")


def _print_table(summaries: list[Any]) -> None:
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
    make_console().print(table)


def _print_differences(runs: list[Any]) -> None:
    from rich.table import Table
    from rich.text import Text

    from headwise.runs.differences import find_differences

    table = Table(box=None, header_style="bold", title="settings that differ", title_justify="left")
    table.add_column("key", style="cyan")
    for run in runs:
        table.add_column(Text(make_printable(run.name)))
    for key, values in find_differences([run.config for run in runs]).items():
        table.add_row(*(Text(make_printable(cell)) for cell in (key, *("-" if v is None else str(v) for v in values))))
    make_console().print(table)
