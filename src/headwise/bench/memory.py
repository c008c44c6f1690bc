"""Peak memory: the growth of this process's resident set, from /proc on Linux."""

from __future__ import annotations

import ctypes
from pathlib import Path

STATUS, CLEAR_REFS = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def reset_peak() -> int | None:
    """Return freed memory to the system, reset the high-water mark, and return the resident bytes; None if the system
    does not support it."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
        CLEAR_REFS.write_text("5")  # of proc(5): reset the peak
        return _read_bytes("VmRSS")
    except (OSError, AttributeError, TypeError):
        return None


def peak_growth(before: int | None) -> int | None:
    """The largest growth of the resident set since `reset_peak`."""
    return None if before is None else max(_read_bytes("VmHWM") - before, 0)


def _read_bytes(field: str) -> int:
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(field))
    return 1024 * int(line.split()[1])
