"""Where and how precisely to compute: device, threads, precision."""

import ctypes
from contextlib import AbstractContextManager

import torch

from headwise.errors import UserError
from headwise.train.config import TrainConfig
from headwise.utils.cpu import count_busy_cores, count_cores


def prepare(config: TrainConfig) -> torch.device:
    """Set threads, flush denormals, and choose the device.

    Call it before the first tensor is made: the workers of torch's thread pool take the flag
    over when they start, and never again.
    """
    # a saturated softmax is full of denormals, and each costs about a hundred normal operations
    torch.set_flush_denormal(True)
    tune_allocator()
    if config.threads:
        torch.set_num_threads(config.threads)
    return choose_device(config.device)


def describe_busy_cores(threads: int = 0) -> str:
    """A warning where several threads would share their processors with another program; empty where they do not.

    Threads wait for each other at every product: where one of two waited for its processor as well, training was seen
    to be forty times slower, not twice.
    """
    threads, busy = threads or torch.get_num_threads(), count_busy_cores()
    free = max(1, count_cores() - busy)
    if threads <= free or torch.accelerator.is_available():
        return ""
    return (
        f"{busy} of {count_cores()} processors are busy with other programs, for which {threads} threads would wait "
        f"again and again: --set train.threads={free} may be much faster"
    )


def tune_allocator() -> None:
    """Ask glibc to keep freed memory for the next step instead of giving it back to the system.

    Every step frees and takes the same large tensors; fetched anew, each page is cleared and mapped again, which
    takes a tenth of a step of the base size (benchmarks/README.md). Other C libraries lack the call: nothing happens.
    """
    trim_threshold, top_pad, mmap_max = -1, -2, -4  # of <malloc.h>
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return
    mallopt(mmap_max, 0)
    mallopt(trim_threshold, 2**31 - 1)
    mallopt(top_pad, 2**28)


def choose_device(name: str) -> torch.device:
    """A device that is really there; `auto` is the accelerator, else the CPU."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if name == "auto":
        return accelerator or torch.device("cpu")
    try:
        chosen = torch.device(name)
        torch.empty(0, device=chosen)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        there = f"cpu or {accelerator}" if accelerator else "cpu"
        raise UserError(f"device: '{name}' is not available here; use {there}") from error
    return chosen


def autocast(precision: str, where: torch.device) -> AbstractContextManager[object]:
    """Context of mixed precision (autocast) for forward passes; refused where the hardware would only emulate it."""
    wanted = precision == "bfloat16"
    if wanted and not _has_bfloat16(where):
        raise UserError(f"train.precision: {where.type} here has no bfloat16 arithmetic; use float32")
    return torch.autocast(where.type, dtype=torch.bfloat16, enabled=wanted)


def _has_bfloat16(where: torch.device) -> bool:
    if where.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if where.type == "cpu":
        can = torch.cpu.get_capabilities()
        return any(can.get(unit, False) for unit in ("avx512_bf16", "amx_bf16", "bf16"))
    return True
