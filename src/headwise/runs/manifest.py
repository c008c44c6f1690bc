"""A folder's `manifest.json`: size and SHA-256 of each file, and a SHA-256 of the list itself.

safetensors reads flipped bits without a word, so nothing is loaded that does not match.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from headwise.errors import UserError
from headwise.utils.files import open_regular, parse_json, read_bytes

NAME = "manifest.json"


class Damaged(UserError):
    """A file that is missing or not what was written."""

    def __init__(self, path: Path, what: str):
        super().__init__(f"{path} is damaged: {what}; use another checkpoint")
        self.path = path


def seal(folder: Path) -> None:
    """Write the manifest of all files that are in the folder now."""
    files = {file.name: _facts(file) for file in sorted(folder.iterdir()) if file.name != NAME}
    (folder / NAME).write_text(_render(files), encoding="utf-8")


def check(folder: Path, names: Iterable[str]) -> list[str]:
    """Those of `names` that the folder holds, each verified; raises Damaged."""
    files = _listed(folder / NAME)
    held = [name for name in names if name in files]
    for name in held:
        try:
            found = _facts(folder / name)
        except OSError as error:
            raise Damaged(folder / name, f"it cannot be read ({error.strerror})") from error
        if found != files[name]:
            raise Damaged(folder / name, f"it differs from {NAME} (size or SHA-256)")
    return held


def _listed(path: Path) -> Mapping[str, Any]:
    try:
        text = read_bytes(path).decode("ascii")
        files = parse_json(text)["files"]
        intact = text == _render(files)
    except OSError as error:
        raise Damaged(path, f"it cannot be read ({error.strerror})") from error
    except (ValueError, KeyError, TypeError):
        intact = False
    if not intact:
        raise Damaged(path, "it differs from what was written")
    return files


def _facts(path: Path) -> dict[str, Any]:
    with os.fdopen(open_regular(path), "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return {"bytes": file.tell(), "sha256": digest}


def _render(files: Mapping[str, Any]) -> str:
    listed = json.dumps(files, sort_keys=True)
    digest = hashlib.sha256(listed.encode()).hexdigest()
    return json.dumps({"files": files, "sha256": digest}, sort_keys=True, indent=1) + "\n"
