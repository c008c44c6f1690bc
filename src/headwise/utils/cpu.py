"""What there is to compute with, told without torch."""

from __future__ import annotations

import os
from pathlib import Path
from time import sleep


def cores() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def taken(seconds: float = 0.2) -> int:
    """How many of these processors other programs keep busy; 0 where the system does not tell."""
    try:
        before = _idle()
        sleep(seconds)
        after = _idle()
    except (OSError, ValueError):
        return 0
    due = seconds * os.sysconf("SC_CLK_TCK")
    return sum(after[core] - before[core] < due / 2 for core in before)


def _idle() -> dict[int, int]:
    """Ticks that each processor of this process has idled, waiting for files included."""
    ours = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else ()
    found = {}
    for line in Path("/proc/stat").read_text().splitlines():
        name, *ticks = line.split()
        if name[:3] == "cpu" and name[3:].isdigit() and int(name[3:]) in ours:
            found[int(name[3:])] = int(ticks[3]) + int(ticks[4])
    return found
