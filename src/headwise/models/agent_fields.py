"""Settings that agents with a replay buffer have in common, and their networks.

Letters: B rows, C features of an observation, D numbers of a state, A actions.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal

import torch
from pydantic import Field, field_validator
from torch import Tensor, nn

from headwise.blocks.contrast import Contrast, Views
from headwise.blocks.frames import LAYERS, Layers, ObservationEncoder, make_convolutions
from headwise.blocks.target_network import TargetNetwork
from headwise.models.config import ModelConfig
from headwise.utils.notebook import HtmlTree


class AgentFields(ModelConfig):
    """`observation`, `actions` and `discrete` are those of the environment; the task sets them.

    `frame_encoder` is for frames: that of DQN has three convolutions and a linear layer with ReLU; that of CURL
    `convolutions` of 3 x 3, the first with a stride of 2, and a linear layer with LayerNorm.
    """

    observation: tuple[int, ...] = (4, 84, 84)  # numbers of a state, or channels, rows and columns of frames
    actions: int = Field(4, ge=1)  # numbers of a continuous action, or discrete actions to choose from
    discrete: bool = True
    frame_encoder: Literal["dqn", "curl"] = "dqn"
    channels: int = Field(32, ge=1)  # of CURL's convolutions
    convolutions: int = Field(4, ge=1)
    features: int = Field(512, ge=1)  # of a frame; a state of numbers is its own features
    mlp: tuple[int, ...] = ()  # widths of the hidden layers of each network on the features

    @field_validator("observation")
    @classmethod
    def _check_observation(cls, shape: tuple[int, ...]) -> tuple[int, ...]:
        if len(shape) not in (1, 3) or min(shape) < 1:
            raise ValueError("is the number of numbers of a state, or channels, rows and columns of frames")
        return shape

    def build_encoder(self) -> ObservationEncoder:
        if len(self.observation) == 1:
            return ObservationEncoder.of_states(self.observation[0])
        channels, rows, columns = self.observation
        of_curl: Layers = ((self.channels, 3, 2), *[(self.channels, 3, 1)] * (self.convolutions - 1))
        convolutions, flat = make_convolutions(
            (channels, rows, columns), of_curl if self.frame_encoder == "curl" else LAYERS
        )
        return ObservationEncoder(convolutions, self.build_projection(flat), flat, self.features)

    def build_projection(self, flat: int) -> nn.Module:
        """What convolutions leave of frames -> features."""
        if len(self.observation) == 1:
            return nn.Identity()
        last = nn.LayerNorm(self.features) if self.frame_encoder == "curl" else nn.ReLU()
        return nn.Sequential(nn.Linear(flat, self.features), last)

    def build_contrast(self, width: int) -> Contrast:
        """The contrastive loss on features of this width."""
        return Contrast()

    def init_weights(self, model: nn.Module) -> None:
        """With CURL's encoder, weights are orthogonal and biases 0, as in its released code, but for the contrastive
        loss; else as PyTorch has them."""
        if self.frame_encoder == "curl":
            for name, module in model.named_modules():
                if not name.startswith("contrast"):
                    init_orthogonal(module)


def init_orthogonal(module: nn.Module) -> None:
    """Orthogonal weights of a linear layer; delta-orthogonal ones of a convolution (Xiao et al. 2018)."""
    if isinstance(module, nn.Linear):
        nn.init.orthogonal_(module.weight)
        nn.init.zeros_(module.bias)
    elif isinstance(module, nn.Conv2d):
        middle = module.kernel_size[0] // 2
        nn.init.zeros_(module.weight)
        nn.init.orthogonal_(module.weight.data[:, :, middle, middle], nn.init.calculate_gain("relu"))
        assert module.bias is not None
        nn.init.zeros_(module.bias)


def build_mlp(inputs: int, hidden: Sequence[int], outputs: int) -> nn.Sequential:
    """Linear layers with ReLU between them.

    >>> [tuple(layer.weight.shape) for layer in build_mlp(5, (8, 7), 2)[::2]]
    [(8, 5), (7, 8), (2, 7)]
    """
    widths = [inputs, *hidden]
    layers: list[nn.Module] = []
    for one, two in pairwise(widths):
        layers += [nn.Linear(one, two), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], outputs))


class Agent(HtmlTree, nn.Module):
    """An agent that learns values of actions: `forward(observations)` is what it acts by.

    Its encoder and its networks of values have target networks, which follow them. The target of the encoder makes the
    keys of a contrastive loss.
    """

    def __init__(self, config: AgentFields, encoder: ObservationEncoder, values: nn.Module):
        super().__init__()
        self.config, self.encoder, self.values = config, encoder, values
        self.contrast = config.build_contrast(encoder.width)
        self.target_encoder, self.target_values = TargetNetwork(encoder), TargetNetwork(values)

    def act(self, observations: Tensor) -> Tensor:
        """The best actions: (B,) numbers of discrete ones, or (B, A) from -1 to 1."""
        actions: Tensor = self(observations)
        return actions

    def evaluate_by_target(self, observations: Tensor, *actions: Tensor) -> Tensor:
        """What the target networks of encoder and values answer."""
        return self.target_values(self.values, self.target_encoder(self.encoder, observations), *actions)

    def contrast_views(self, views: Views) -> Tensor:
        """The contrastive loss of the encoder and its target."""
        return self.contrast(views, self.encoder, self.encode_keys)

    def encode_keys(self, frames: Tensor) -> Tensor:
        """Features by the target of the encoder (momentum encoder), without gradients."""
        return self.target_encoder(self.encoder, frames)

    def make_blank_inputs(self, rows: int, length: int, device: str = "meta") -> tuple[Tensor]:
        """Observations of zeros, to count costs; `length` of them count as rows."""
        return (torch.zeros(rows * length, *self.config.observation, device=device),)

    def update_targets(self, encoder_rate: float, value_rate: float) -> None:
        self.target_encoder.follow(self.encoder, encoder_rate)
        self.target_values.follow(self.values, value_rate)


def finish(config: AgentFields, model: Any) -> Any:
    """Initialise the weights of an agent; its target networks begin with the same."""
    config.init_weights(model)
    model.update_targets(1.0, 1.0)
    return model
