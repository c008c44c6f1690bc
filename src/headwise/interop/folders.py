"""JSON files and folders of other programs."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headwise.errors import UserError
from headwise.utils import files
from headwise.utils.files import atomic_folder


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object."""
    try:
        data = files.read_json(path)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); name a folder that has it") from None
    except ValueError:
        raise UserError(f"{path}: is not JSON; fetch it again") from None
    if not isinstance(data, dict):
        raise UserError(f"{path}: is not a JSON object; fetch it again")
    return data


@contextmanager
def create_folder(path: Path | str) -> Iterator[Path]:
    """Create a folder atomically: it appears at `path` when it is complete. A folder with files is never replaced."""
    path = Path(path)
    if path.exists() and not (path.is_dir() and not any(path.iterdir())):
        raise UserError(f"{path}: exists already; choose a new folder")
    with atomic_folder(path) as temporary:
        yield temporary
