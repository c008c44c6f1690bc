"""Models in evaluation: on which device they are, without dropout, without gradients."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any

import torch
from torch import nn


def get_device(model: Any) -> torch.device:
    """Where a model's weights are; engines without weights in torch run on the CPU."""
    if isinstance(model, nn.Module):
        for tensor in chain(model.parameters(), model.buffers()):
            return tensor.device
    return torch.device("cpu")


@contextmanager
def eval_mode(model: Any) -> Iterator[None]:
    """Evaluation mode, without dropout; afterwards the model is as it was."""
    if not (isinstance(model, nn.Module) and model.training):
        yield
        return
    # members of an ensemble may have modes of their own
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


@contextmanager
def inference_mode(model: Any) -> Iterator[None]:
    """Evaluation mode without gradients; afterwards the model is as it was."""
    with eval_mode(model), torch.inference_mode():
        yield
