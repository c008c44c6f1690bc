"""Device, threads and the memory allocator."""

import ctypes

import torch

from headwise.errors import UserError
from headwise.train.config import TrainConfig
from headwise.utils.cpu import count_busy_cores, count_cores


def prepare(config: TrainConfig) -> torch.device:
    """Set threads, flush denormals, and choose the device.

    Call it before the first tensor is created: threads of torch's pool copy the flag when they start, and only then.
    """
    # a saturated softmax gives many denormals, each about a hundred times as slow as a normal number
    torch.set_flush_denormal(True)
    tune_allocator()
    if config.threads:
        torch.set_num_threads(config.threads)
    return choose_device(config.device)


def describe_busy_cores(threads: int = 0) -> str:
    """A warning if other programs use the cores that torch's threads need; empty if enough cores are free.

    Threads synchronise at every matrix product, so a thread that waits for a core delays all of them: training was
    measured to be forty times slower, not twice.
    """
    threads, busy = threads or torch.get_num_threads(), count_busy_cores()
    free = max(1, count_cores() - busy)
    if threads <= free or torch.accelerator.is_available():
        return ""
    return (
        f"other programs keep {busy} of {count_cores()} cores busy, and {threads} threads would wait for them: "
        f"--set train.threads={free} may be much faster"
    )


def tune_allocator() -> None:
    """Let glibc keep freed memory for the next step instead of returning it to the system.

    Every step frees and allocates the same large tensors; mapping and clearing their pages again takes a tenth of a
    step at the base size (benchmarks/README.md). Other C libraries have no mallopt: nothing happens.
    """
    trim_threshold, top_pad, mmap_max = -1, -2, -4  # constants of <malloc.h>
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return
    mallopt(mmap_max, 0)
    mallopt(trim_threshold, 2**31 - 1)
    mallopt(top_pad, 2**28)


def choose_device(name: str) -> torch.device:
    """An available device by name; `auto` is the accelerator, or the CPU if there is none."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if name == "auto":
        return accelerator or torch.device("cpu")
    try:
        chosen = torch.device(name)
        torch.empty(0, device=chosen)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        available = f"cpu or {accelerator}" if accelerator else "cpu"
        raise UserError(f"device: '{name}' is not available here; use {available}") from error
    return chosen
