"""Errors of the tokenizers library. Its engines may come from anybody."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from headwise.errors import UserError

MAX_REASON = 200  # characters


@contextmanager
def engine_errors() -> Iterator[None]:
    """Turn an error of an engine into a UserError. It raises bare Exceptions, and PanicExceptions, which are
    BaseExceptions: a hostile regular expression does so for some texts."""
    try:
        yield
    except BaseException as error:
        if type(error) is not Exception and type(error).__name__ != "PanicException":
            raise
        reason = " ".join(str(error).split())[:MAX_REASON]
        raise UserError(f"tokeniser: its engine fails on this text ({reason}); use another tokenizer.json") from None
