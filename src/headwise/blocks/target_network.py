"""Target networks and momentum encoders: copies of a network whose weights follow its own."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import functional_call


class TargetNetwork(nn.Module):
    """A target network (Mnih et al. 2015) or momentum encoder (He et al. 2020): θ' <- θ' + rate (θ - θ').

    The weights are buffers with which the network itself is called, so that they are no parameters: nothing can train
    them, and they do not count.

    >>> network = nn.Linear(2, 1)
    >>> target = TargetNetwork(network)
    >>> target(network, torch.ones(3, 2)).requires_grad
    False
    """

    def __init__(self, network: nn.Module):
        super().__init__()
        self.names = {name: name.replace(".", "_") for name, _ in network.named_parameters()}
        for name, weight in network.named_parameters():
            self.register_buffer(self.names[name], weight.detach().clone())

    @torch.no_grad()
    def forward(self, network: nn.Module, *inputs: Tensor) -> Tensor:
        """What the network would answer with the weights of the target."""
        weights = {name: getattr(self, own) for name, own in self.names.items()}
        answer: Tensor = functional_call(network, weights, inputs)
        return answer

    @torch.no_grad()
    def follow(self, network: nn.Module, rate: float) -> None:
        """Move towards the weights of the network; a rate of 1 copies them."""
        weights = dict(network.named_parameters())
        targets = [getattr(self, own) for own in self.names.values()]
        if targets:
            torch._foreach_lerp_(targets, [weights[name].detach() for name in self.names], rate)
