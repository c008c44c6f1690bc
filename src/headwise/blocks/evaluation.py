"""Evaluation and inference mode of models, and their device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain

import torch
from torch import nn


def get_device(model: object) -> torch.device:
    """The device of a model's weights; a model without torch weights runs on the CPU."""
    if isinstance(model, nn.Module):
        for tensor in chain(model.parameters(), model.buffers()):
            return tensor.device
    return torch.device("cpu")


@contextmanager
def eval_mode(model: object) -> Iterator[None]:
    """Evaluation mode, without dropout; restores the mode of every module afterwards."""
    if not (isinstance(model, nn.Module) and model.training):
        yield
        return
    # modules may differ in mode, as members of an ensemble do
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


@contextmanager
def inference_mode(model: object) -> Iterator[None]:
    """Evaluation mode without gradients; restores the mode of every module afterwards."""
    with eval_mode(model), torch.inference_mode():
        yield
