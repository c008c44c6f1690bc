"""`headwise compare`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from headwise.cli.common import Changes, With, say, warnings_to_stderr

if TYPE_CHECKING:
    from headwise.compare.config import Suite


def compare(
    table: str,
    *,
    jobs: Annotated[int, Parameter(help="Runs at once, each with its share of the cores; 0: one for each core.")] = 0,
    arm: Annotated[list[str] | None, Parameter(negative="", help="Only this arm; may be repeated.")] = None,
    seeds: Annotated[
        list[int] | None, Parameter(negative="", consume_multiple=True, help="Instead of the table's own.")
    ] = None,
    set_: Changes = None,
    format_: Annotated[Literal["text", "markdown", "json"], Parameter(name="--format", help="Of the table.")] = "text",
    plot: Annotated[
        Path | None, Parameter(help="Draw a dot plot, or of several tables quality against cost, to this .png or .svg.")
    ] = None,
    runs: Annotated[Path, Parameter(help="Where the tables' folders of runs are made.")] = Path("runs/compare"),
    dry_run: Annotated[bool, Parameter(negative="", help="Only say what is done and what would run.")] = False,
    with_: With = None,
) -> None:
    """Train variants of one experiment over seeds and compare them in one table.

    Results are kept: a second call costs nothing, a changed table runs only what changed, and after Ctrl-C the same
    command goes on. docs/compare.md describes the table.

    For example:

        headwise compare wirings --dry-run
        headwise compare my_table.toml --jobs 2 --plot scores.svg
        headwise compare my_table.toml --arm pre --arm post --seeds 1 2 --format markdown
        headwise compare efficient --plot efficient.svg

    Parameters
    ----------
    table
        A TOML file, or the name of a table that comes with Headwise.
    """
    warnings_to_stderr()
    from headwise.compare.config import Suite
    from headwise.utils.plugins import add_parts

    add_parts(with_ or ())
    suite = Suite.read(table, set_ or ()).select(arm or (), seeds or ())
    if dry_run:
        _print_states(suite, runs)
        return

    from headwise.compare import suites

    if plot:
        from headwise.inspect.files import check_ending

        check_ending(plot, ".svg", ".png")  # now, and not after hours of training
    found = suites.compare_all(suite, runs, jobs=jobs, parts=with_ or ())
    title = suite.title or suite.name
    suites.print_suite(title, found, format_)
    if plot:
        say(f"the plot is in {suites.draw_suite(title, found, plot)}")
    if any(arm.failures for each in found.values() for arm in each.arms.values()):
        raise SystemExit(1)


def _print_states(suite: Suite, runs: Path) -> None:
    from headwise.compare.cell import build_cells
    from headwise.compare.config import Budget

    several = len(suite.tables) > 1
    listed = [
        (f"{config.name}/{cell.name}" if several else cell.name, cell.experiment.train, cell.describe_state())
        for config in suite.tables.values()
        for cell in build_cells(config, runs)
    ]
    width = max(len(name) for name, _, _ in listed)
    for name, train, state in listed:
        spent = ", ".join(f"{value:g} {key}" for key in Budget.model_fields if (value := getattr(train, key)))
        print(f"{name:<{width}}  {spent}  {state}")
    print(f"{len(listed)} runs, {sum(state != 'done' for _, _, state in listed)} of them to do")
