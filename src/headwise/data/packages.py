"""Installed packages whose data files are read; their code is not imported."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

from headwise.errors import UserError
from headwise.utils.extras import describe_missing


def find_package(package: str) -> Path:
    """The folder that an installed package's files are relative to."""
    try:
        return Path(str(metadata.distribution(package).locate_file("")))
    except metadata.PackageNotFoundError:
        raise UserError(f"data.name: {describe_missing(package)}") from None
