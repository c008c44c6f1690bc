"""The exponential moving average of a model's weights."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

RUNNING_STATISTICS = ("running_mean", "running_var")


class Ema:
    """The exponential moving average (EMA) of a model's weights.

    shadow <- d · shadow + (1 - d) · weight, d = min(decay, (1 + step) / (10 + step)). The smaller d of
    the first steps lets short runs forget their initial weights. Decay 0: no average. Running statistics of batch norm
    are averaged with the weights.
    """

    def __init__(self, model: nn.Module, decay: float):
        self.decay = decay
        running = {name: tensor for name, tensor in model.named_buffers() if name.endswith(RUNNING_STATISTICS)}
        self.weights: dict[str, Tensor] = {**dict(model.named_parameters()), **running} if decay else {}
        self.shadow = {name: weight.detach().clone() for name, weight in self.weights.items()}

    @torch.no_grad()
    def update(self, step: int) -> None:
        if self.shadow:
            decay = min(self.decay, (1 + step) / (10 + step))
            torch._foreach_lerp_(list(self.shadow.values()), list(self.weights.values()), 1 - decay)

    @contextmanager
    def swap_in(self) -> Iterator[None]:
        """Swap the averaged weights into the model, for validation."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def dump(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """`tensors` of the model with averages in place of weights; empty if there is no average."""
        return {name: self.shadow.get(name, tensor) for name, tensor in tensors.items()} if self.shadow else {}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        for name, shadow in self.shadow.items():
            # if the checkpoint has no average, it starts from the weights
            shadow.copy_(tensors.get(name, self.weights[name].detach()))

    @torch.no_grad()
    def _swap(self) -> None:
        for name, shadow in self.shadow.items():
            weight = self.weights[name]
            current = weight.clone()
            weight.copy_(shadow)
            shadow.copy_(current)
