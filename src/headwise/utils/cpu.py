"""CPU cores and memory that this process may use, without importing torch."""

from __future__ import annotations

import os
import platform
import resource
from pathlib import Path
from time import sleep

VECTORS = {"avx512f": "AVX-512", "avx2": "AVX2"}  # flags of /proc/cpuinfo


def count_cores() -> int:
    """The number of CPU cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def describe_cpu() -> str:
    """The model of the CPU and the widest vector instructions it has, such as "AMD EPYC, AVX-512"; empty if unknown."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        return platform.processor()
    fields = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    flags = set(fields.get("flags", "").split())
    vectors = next((name for flag, name in VECTORS.items() if flag in flags), "")
    return ", ".join(filter(None, (fields.get("model name", ""), vectors)))


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
    """Bytes of memory that are free, or can be freed without swapping, and that this process may map; 0 if the system
    does not report it."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return 0
    sizes = dict(line.split(":") for line in lines if ":" in line)
    available = 1024 * int(sizes.get("MemAvailable", "0 kB").split()[0])
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return available
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    return max(min(available, limit - mapped), 1)
