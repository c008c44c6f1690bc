"""`headwise studio`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter, validators

from headwise.cli.common import say, warnings_to_stderr
from headwise.errors import UserError
from headwise.utils.extras import needed_for


def studio(
    *runs: Path,
    host: Annotated[str, Parameter(help="Where to listen; others than this machine's own need --key.")] = "127.0.0.1",
    port: Annotated[int, Parameter(validator=validators.Number(gte=0, lte=65535), help="0: any that is free.")] = 8765,
    key: Annotated[str, Parameter(help="What requests must show, where others can reach the studio.")] = "",
    browser: Annotated[bool, Parameter(help="Open a browser on it.")] = True,
) -> None:
    """Look inside runs, in the browser: attention of every head, step by step.

    For example:

        headwise studio
        headwise studio runs/demo runs/shakespeare-gpt
        headwise studio --port 9000 --no-browser

    Parameters
    ----------
    runs
        Run folders, Hugging Face folders, or folders that hold runs; `runs` by default, which may be empty.
    """
    warnings_to_stderr()
    with needed_for("headwise studio"):
        from headwise.studio.server import serve
    from headwise.studio.run_registry import RunRegistry
    from headwise.web.guard import Address

    for path in runs:
        if not path.is_dir():
            raise UserError(f"{path}: there is no such folder; name a run, or the folder of your runs")
    shelf = RunRegistry(runs or (Path("runs"),))
    if not shelf.items():
        say("there are no runs here yet: `headwise demo` trains one, and it shows up in the studio")
    serve(shelf, Address(host, port, key), browser=browser, say=say)
