"""The folder `parts` of a run or a model folder: copies of the user's parts files, with their SHA-256 in a manifest.

They are read as bytes here; whether they are executed is decided in `config/plugins.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from headwise.errors import UserError
from headwise.runs.manifest import Damaged, list_files, verify_files, write_manifest
from headwise.utils.files import read_bytes, write

FOLDER = "parts"
NONE: Mapping[str, bytes] = {}


def write_parts(folder: Path, files: Mapping[str, bytes]) -> None:
    """Keep parts files, given by name, in a new run or model folder; without files nothing is written."""
    if not files:
        return
    for name, source in files.items():
        write(folder / FOLDER / name, source)
    write_manifest(folder / FOLDER)


def read_parts(folder: Path, own: Mapping[str, bytes] = NONE) -> dict[str, bytes]:
    """The parts files that a run or a model folder keeps, by name; empty if there are none. Nothing is executed.

    `own` are contents that the user has imported, by SHA-256. Where the run was trained with one of them, it is
    returned, and the copy of the run is not read: it may have been altered since."""
    home = folder / FOLDER
    if not home.is_dir():
        return {}
    try:
        names = list_files(home)
        for name in names:
            if Path(name).name != name or not name.endswith(".py"):  # the manifest may come from anybody
                raise Damaged(home / "manifest.json", f"{name!r} is not the name of a Python file")
        kept = {name: own[digest] for name, digest in names.items() if digest in own}
        others = verify_files(home, [name for name in names if name not in kept])
        return {**kept, **{name: read_bytes(home / name) for name in others}}
    except Damaged as error:
        raise UserError(
            f"{error.path}: differs from what the run wrote; restore a copy of {home}, or name the original --with"
        ) from None
