"""`headwise studio`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter, validators

from headwise.cli.common import DataRoot, KeyFile, log_to_stderr, say
from headwise.errors import UserError
from headwise.utils.extras import needed_for


def studio(
    *runs: Path,
    host: Annotated[str, Parameter(help="Address to listen on; any but localhost needs a key.")] = "127.0.0.1",
    port: Annotated[
        int, Parameter(validator=validators.Number(gte=0, lte=65535), help="Port; 0: any free one.")
    ] = 8765,
    key_file: KeyFile = None,
    data_root: DataRoot = None,
    browser: Annotated[bool, Parameter(help="Open a browser.")] = True,
) -> None:
    """Explore runs in the browser: attention of every head, decoding step by step.

    For example:

        headwise studio
        headwise studio runs/demo runs/shakespeare-gpt
        headwise studio --port 9000 --no-browser
        headwise studio /elsewhere/runs --data-root /disk/corpora
        headwise studio --with my_parts.py
        headwise studio --host 0.0.0.0 --key-file keys.txt

    Parameters
    ----------
    runs
        Run folders, Hugging Face folders, or folders of runs; `runs` by default, which may be empty.
    """
    log_to_stderr()
    with needed_for("headwise studio"):
        from headwise.studio.server import serve
    from headwise.studio.run_registry import RunRegistry
    from headwise.web.guard import Address
    from headwise.web.keys import read_keys

    for path in runs:
        if not path.is_dir():
            raise UserError(f"{path}: there is no such folder; name a run, or the folder of your runs")
    registry = RunRegistry(runs or (Path("runs"),), data_root or "")
    if not registry.items():
        say("there are no runs yet: `headwise demo` trains one, which then appears in the studio")
    serve(registry, Address(host, port, read_keys(key_file)), browser=browser, say=say)
