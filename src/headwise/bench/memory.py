"""How much memory a piece of work takes at its peak: the growth of this process's resident set, as Linux tells it."""

from __future__ import annotations

import ctypes
from pathlib import Path

STATUS, MARKS = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def begin() -> int | None:
    """Give freed memory back, lower the high-water mark to what is resident, and say how many bytes that are; None
    where the system cannot."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
        MARKS.write_text("5")  # of proc(5): reset the peak
        return _bytes("VmRSS")
    except (OSError, AttributeError, TypeError):
        return None


def peak(before: int | None) -> int | None:
    """How far the resident set grew at most since `begin`."""
    return None if before is None else max(_bytes("VmHWM") - before, 0)


def _bytes(field: str) -> int:
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(field))
    return 1024 * int(line.split()[1])
