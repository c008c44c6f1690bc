"""A file appears whole or not at all."""

import os
from pathlib import Path
from tempfile import NamedTemporaryFile

from headwise.errors import UserError


def write_atomically(path: Path, text: str) -> None:
    """Write beside, flush to the disk, rename; the old file stays if anything fails."""
    try:
        with NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, delete=False) as file:
            try:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
                os.replace(file.name, path)
            except BaseException:
                os.unlink(file.name)
                raise
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror}); check the folder") from None
