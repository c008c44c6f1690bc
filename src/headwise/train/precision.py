"""Mixed precision."""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch

from headwise.errors import UserError


def autocast(precision: str, device: torch.device) -> AbstractContextManager[object]:
    """Mixed precision: the autocast context of forward passes; an error if the hardware would only emulate it."""
    enabled = precision == "bfloat16"
    if enabled and not _has_bfloat16(device):
        raise UserError(f"train.precision: this {device.type} has no bfloat16 arithmetic; use float32")
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=enabled)


def _has_bfloat16(device: torch.device) -> bool:
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if device.type == "cpu":
        capabilities = torch.cpu.get_capabilities()
        return any(capabilities.get(unit, False) for unit in ("avx512_bf16", "amx_bf16", "bf16"))
    return True
