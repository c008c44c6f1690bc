"""CPU cores and memory that this process may use, without importing torch."""

from __future__ import annotations

import os
from pathlib import Path
from time import sleep


def count_cores() -> int:
    """The number of CPU cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def count_busy_cores(seconds: float = 0.2) -> int:
    """The number of these cores that other programs keep busy; 0 if the system does not report it."""
    try:
        before = _read_idle_ticks()
        sleep(seconds)
        after = _read_idle_ticks()
    except (OSError, ValueError):
        return 0
    expected = seconds * os.sysconf("SC_CLK_TCK")
    return sum(after[core] - before[core] < expected / 2 for core in before.keys() & after.keys())


def _read_idle_ticks() -> dict[int, int]:
    """Idle ticks of each core of this process, I/O wait included."""
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else ()
    idle = {}
    for line in Path("/proc/stat").read_text().splitlines():
        name, *ticks = line.split()
        if name[:3] == "cpu" and name[3:].isdigit() and int(name[3:]) in allowed:
            idle[int(name[3:])] = int(ticks[3]) + int(ticks[4])
    return idle


def get_available_memory() -> int:
    """Bytes of memory that are free, or can be freed without swapping; 0 if the system does not report it."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return 0
    sizes = dict(line.split(":") for line in lines if ":" in line)
    return 1024 * int(sizes.get("MemAvailable", "0 kB").split()[0])
