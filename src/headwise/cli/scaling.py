"""`headwise scaling`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from headwise.cli.common import Changes, log_to_stderr, say

if TYPE_CHECKING:
    from headwise.scaling.config import ScalingConfig


def scaling(
    ladder: Path,
    *,
    jobs: Annotated[int, Parameter(help="Runs in parallel, which share the cores; 0: one per core.")] = 0,
    seeds: Annotated[
        list[int] | None, Parameter(negative="", consume_multiple=True, help="Seeds, instead of the file's.")
    ] = None,
    set_: Changes = None,
    format_: Annotated[Literal["text", "markdown", "json"], Parameter(name="--format", help="Output format.")] = "text",
    plot: Annotated[Path | None, Parameter(help="Plot the scaling laws to this .png or .svg.")] = None,
    runs: Annotated[Path, Parameter(help="The folder for the runs of all files.")] = Path("runs/scaling"),
    dry_run: Annotated[bool, Parameter(negative="", help="List the runs: N, D, C, done or not.")] = False,
) -> None:
    """Train a language model in several sizes and fit scaling laws: loss as power laws of parameters N, tokens D and
    compute C.

    Finished runs are reused: a changed file trains only what changed, and after Ctrl-C the same command continues.
    docs/scaling.md describes the file.

    For example:

        headwise scaling experiments/scaling/sotu.toml --dry-run
        headwise scaling experiments/scaling/sotu.toml --jobs 1 --plot laws.svg
        headwise scaling my_ladder.toml --seeds 1 2 3 --format markdown

    Parameters
    ----------
    ladder
        A TOML file.
    """
    log_to_stderr()
    from headwise.scaling.config import ScalingConfig

    config = ScalingConfig.read(ladder, set_ or ())
    config = config.replace(seeds=tuple(seeds)) if seeds else config
    if dry_run:
        _print_runs(config, runs)
        return

    from headwise.scaling.render import FORMATS
    from headwise.scaling.run import run_scaling

    if plot:
        from headwise.inspect.files import check_ending

        check_ending(plot, ".svg", ".png")  # before hours of training
    result = run_scaling(config, runs, jobs=jobs)
    FORMATS[format_](result)
    if plot:
        from headwise.scaling.plot import plot_scaling

        say(f"plot: {plot_scaling(result, plot)}")
    if result.failures:
        raise SystemExit(1)


def _print_runs(config: ScalingConfig, runs: Path) -> None:
    from headwise.compare.cell import build_cells
    from headwise.compare.render import format_si
    from headwise.scaling.run import count_by_size

    sizes = count_by_size(config)
    size_of = {arm.name: size for size, arms in config.rungs for arm in arms}
    listed = [(cell, cell.describe_state()) for cell in build_cells(config.comparison, runs)]
    width = max(len(cell.name) for cell, _ in listed)
    total = 0
    for cell, state in listed:
        count, tokens = sizes[size_of[cell.arm]], cell.experiment.train.tokens
        total += 6 * count * tokens
        read = f"  D {tokens:,}  C {format_si(6 * count * tokens)}" if tokens else ""
        print(f"{cell.name:<{width}}  N {count:,}{read}  {state}")
    compute = f", {format_si(total)} FLOPs" if total else ""
    print(f"{len(listed)} runs{compute}, {sum(state != 'done' for _, state in listed)} of them to do")
