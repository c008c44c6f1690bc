"""A folder's `manifest.json`: size and SHA-256 of each file, and a SHA-256 of the list itself.

safetensors does not detect flipped bits, so files that do not match are not loaded.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from headwise.errors import UserError
from headwise.utils.files import open_regular, parse_json, read_bytes, write

NAME = "manifest.json"


class Damaged(UserError):
    """A file that is missing or does not match the manifest."""

    def __init__(self, path: Path, what: str):
        super().__init__(f"{path} is damaged: {what}; use another checkpoint")
        self.path, self.what = path, what


def write_manifest(folder: Path, names: Iterable[str] | None = None) -> None:
    """Write the manifest of all files that are in the folder now, or of these, atomically."""
    listed = sorted(file.name for file in folder.iterdir() if file.name != NAME) if names is None else names
    write(folder / NAME, render_manifest({name: _describe_file(folder / name) for name in listed}))


def list_files(folder: Path) -> dict[str, str]:
    """The names of the files in the manifest, with their SHA-256; raises Damaged."""
    files = _read_manifest(folder / NAME)
    return {name: str(entry.get("sha256")) if isinstance(entry, dict) else "" for name, entry in files.items()}


def verify_files(folder: Path, names: Iterable[str]) -> list[str]:
    """Verify the files among `names` that the manifest lists, and return their names; raises Damaged."""
    files = _read_manifest(folder / NAME)
    present = [name for name in names if name in files]
    for name in present:
        try:
            actual = _describe_file(folder / name)
        except OSError as error:
            raise Damaged(folder / name, f"it cannot be read ({error.strerror})") from error
        if actual != files[name]:
            raise Damaged(folder / name, f"it differs from {NAME} (size or SHA-256)")
    return present


def _read_manifest(path: Path) -> Mapping[str, Any]:
    try:
        return parse_manifest(read_bytes(path))
    except OSError as error:
        raise Damaged(path, f"it cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise Damaged(path, str(error)) from error


def parse_manifest(content: bytes) -> Mapping[str, Any]:
    """The files that a manifest lists; raises ValueError if it was changed."""
    try:
        text = content.decode("ascii")
        files: dict[str, Any] = parse_json(text)["files"]
        intact = isinstance(files, dict) and text == render_manifest(files)
    except (ValueError, KeyError, TypeError):
        intact = False
    if not intact:
        raise ValueError("it differs from what was written")
    return files


def _describe_file(path: Path) -> dict[str, Any]:
    with os.fdopen(open_regular(path), "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return {"bytes": file.tell(), "sha256": digest}


def render_manifest(files: Mapping[str, Any]) -> str:
    """The text of a manifest, with a SHA-256 of itself."""
    text = json.dumps(files, sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return json.dumps({"files": files, "sha256": digest}, sort_keys=True, indent=1) + "\n"
