"""What no architecture of another library can express, told from files that cannot be written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headwise.errors import UserError


class InexpressibleError(UserError):
    """No architecture of `transformers` or timm can express a model."""


@contextmanager
def explain_refusal(folder: Path | str) -> Iterator[None]:
    """Tell what no architecture can express from files that cannot be written."""
    try:
        yield
    except UserError as error:
        if isinstance(error.__cause__, OSError) or Path(folder).exists():
            raise
        raise InexpressibleError(str(error)) from None
