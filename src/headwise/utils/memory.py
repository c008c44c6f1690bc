"""Too little memory, in one sentence. Nothing here imports torch."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from headwise.errors import UserError

# What torch says on CPUs and accelerators, and of tensors of more than 2^63 bytes; its exceptions are RuntimeErrors.
SIGNS = re.compile(
    r"can't allocate memory|not enough memory|out of memory|Storage size calculation overflowed"
    r"|numel: integer multiplication overflow|Invalid buffer size"
)
SIZE = re.compile(r"(?:tried to allocate|Tried to allocate) ([\d.]+ ?\w*)")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception says that there is too little memory.

    >>> is_out_of_memory(RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"))
    True
    """
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and bool(SIGNS.search(str(error))))


@contextmanager
def needs_memory(what: str, remedy: str) -> Iterator[None]:
    """Turn an exception of too little memory into a UserError: what does not fit, and what to change."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        message = describe_shortage(error, what, remedy)
    else:
        return
    raise UserError(message)  # outside of the handler: the exception holds the tensors of its frames


def describe_shortage(error: BaseException, what: str, remedy: str) -> str:
    """The sentence, with the size that was asked for, if the exception says it."""
    size = SIZE.search(str(error))
    number = float(size[1].split(" ")[0]) if size and size[1].endswith("bytes") else 0.0
    asked = f", which asks for another {number / 1e9:,.1f} GB at once" if number >= 1e8 else ""
    return f"{what} does not fit in memory{asked}; {remedy}"
