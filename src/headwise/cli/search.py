"""`headwise search`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from headwise.cli.common import Changes, Json, log_to_stderr, say


def search(
    experiment: Path,
    *,
    over: Annotated[
        list[str] | None,
        Parameter(negative="", help="A key and its range: uniform, log, int or choice; may be repeated."),
    ] = None,
    trials: Annotated[int, Parameter(help="Trials in all, pruned and failed ones included.")] = 20,
    jobs: Annotated[int, Parameter(help="Trials in parallel, which share the cores; 0: one per core.")] = 0,
    seed: Annotated[int, Parameter(help="Random seed of the search.")] = 1,
    prune: Annotated[bool, Parameter(help="Stop trials that validate worse than the median.")] = True,
    set_: Changes = None,
    plot: Annotated[Path | None, Parameter(help="Plot history and importances to this .png or .svg.")] = None,
    runs: Annotated[Path, Parameter(help="The folder of the search, NAME-search.")] = Path("runs"),
    json_: Json = False,
) -> None:
    """Search for the hyperparameters with the best validation score.

    Trials are ordinary runs in runs/NAME-search. The same command continues a stopped search, or with a larger
    --trials a finished one. The best trial is written as an experiment file, best.toml. docs/search.md describes
    ranges and output.

    For example:

        headwise search my.toml --over 'train.schedule.lr = log(1e-4, 1e-2)' --trials 20
        headwise search my.toml --over 'model.dropout = uniform(0, 0.4)' --over 'model.depth = int(2, 6)'
        headwise search my.toml --over 'model.positions = choice(rotary, alibi)' --jobs 2 --plot search.svg
        headwise train runs/my-search/best.toml --set train.minutes=60

    Parameters
    ----------
    experiment
        A TOML file; docs/experiments.md describes its keys.
    """
    log_to_stderr()
    from headwise.inspect.files import check_ending
    from headwise.search.render import print_json, print_text
    from headwise.search.space import parse_ranges

    if plot:
        check_ending(plot, ".svg", ".png")  # before hours of training
    parse_ranges(over or ())  # before torch is imported

    from headwise.search.run import search as run_search

    try:
        result = run_search(
            experiment, over or (), trials, runs,
            changes=set_ or (), jobs=jobs, seed=seed, prune=prune,
        )  # fmt: skip
    except KeyboardInterrupt:
        say("to go on, give the same command again")
        raise
    (print_json if json_ else print_text)(result)
    if plot and result.best:
        from headwise.search.plot import plot_search

        say(f"plot: {plot_search(result, plot)}")
    if not result.best:
        say("headwise: no trial is complete; see the failures above")
        raise SystemExit(1)
