"""`headwise compare`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from headwise.cli.common import Changes, log_to_stderr, say
from headwise.errors import UserError

if TYPE_CHECKING:
    from headwise.compare.cell import Cell
    from headwise.compare.config import Suite
    from headwise.compare.records import Records

FINISHED = ("done", "recorded")


def compare(
    table: str,
    *,
    jobs: Annotated[int, Parameter(help="Runs in parallel, which share the cores; 0: one per core.")] = 0,
    arm: Annotated[list[str] | None, Parameter(negative="", help="Train only this arm; may be repeated.")] = None,
    seeds: Annotated[
        list[int] | None, Parameter(negative="", consume_multiple=True, help="Seeds, instead of the table's.")
    ] = None,
    quick: Annotated[
        bool, Parameter(negative="", help="Train only the arms that the table lists as quick, with its first seed.")
    ] = False,
    set_: Changes = None,
    format_: Annotated[Literal["text", "markdown", "json"], Parameter(name="--format", help="Output format.")] = "text",
    plot: Annotated[
        Path | None,
        Parameter(
            help="Draw a dot plot to this .png or .svg; for several tables, quality over cost; for a table with an "
            "analysis, ours over published scores."
        ),
    ] = None,
    runs: Annotated[Path, Parameter(help="The folder for the runs of all tables.")] = Path("runs/compare"),
    records: Annotated[
        Path | None,
        Parameter(help="A JSON file of outcomes: those in it are not measured again, and new ones are added to it."),
    ] = None,
    retrain: Annotated[
        bool, Parameter(negative="", help="Train also what the records that come with the table have.")
    ] = False,
    dry_run: Annotated[bool, Parameter(negative="", help="List the runs and whether they are done.")] = False,
) -> None:
    """Train variants of one experiment over seeds and compare them in one table.

    Finished runs are reused: a changed table trains only what changed, and after Ctrl-C the same command continues.
    Some tables come with records of our runs, which are printed without training anything.
    docs/compare.md describes the table.

    For example:

        headwise compare wirings --dry-run
        headwise compare my_table.toml --jobs 2 --plot scores.svg
        headwise compare my_table.toml --arm pre --arm post --seeds 1 2 --format markdown
        headwise compare efficient --plot efficient.svg
        headwise compare narang --quick --jobs 2 --plot narang.svg
        headwise compare fold --retrain --records my-fold.json

    Parameters
    ----------
    table
        A TOML file, or the name of a table that comes with Headwise.
    """
    log_to_stderr()
    from headwise.compare.config import Suite

    if quick and arm:
        raise UserError("--quick and --arm both select arms; give one of them")
    suite = Suite.read(table, set_ or ())
    if records and retrain:
        raise UserError("--retrain does without records, and --records reads them; give one of them")
    if records or retrain:
        suite = suite.replace_records(str(records or ""))
    suite = suite.select_quick(seeds or ()) if quick else suite.select(arm or (), seeds or ())
    if dry_run:
        _print_states(suite, runs)
        return

    from headwise.compare import suites
    from headwise.compare.records import add_records
    from headwise.compare.run import Stopped

    if plot:
        from headwise.inspect.files import check_ending

        check_ending(plot, ".svg", ".png")  # before hours of training
    stopped = False
    try:
        results = suites.compare_all(suite, runs, jobs=jobs)
    except Stopped as stop:
        results, stopped = dict(stop.results), True
    if records:
        add_records(suite, runs, records)
    suites.print_suite(suite, results, format_)
    if plot:
        say(f"plot: {suites.draw_suite(suite.title or suite.name, results, plot)}")
    if stopped:
        raise KeyboardInterrupt
    if any(arm.failures for comparison in results.values() for arm in comparison.arms.values()):
        raise SystemExit(1)


def _print_states(suite: Suite, runs: Path) -> None:
    from headwise.compare.cell import build_cells
    from headwise.compare.config import Budget
    from headwise.compare.records import Records

    several = len(suite.tables) > 1
    listed = [
        (f"{config.name}/{cell.name}" if several else cell.name, cell.experiment.train, _describe_state(cell, records))
        for config in suite.tables.values()
        for records in [Records.read(config.records)]
        for cell in build_cells(config, runs)
    ]
    width = max(len(name) for name, _, _ in listed)
    for name, train, state in listed:
        budget = ", ".join(f"{value:g} {key}" for key in Budget.model_fields if (value := getattr(train, key)))
        print(f"{name:<{width}}  {budget}  {state}")
    print(f"{len(listed)} runs, {sum(state not in FINISHED for _, _, state in listed)} of them to do")


def _describe_state(cell: Cell, records: Records) -> str:
    state = cell.describe_state()
    return "recorded" if state not in FINISHED and records.find(cell) else state
