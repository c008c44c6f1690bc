"""The multi-layer perceptron (Rumelhart et al. 1986, "Learning representations by back-propagating errors"): linear
layers with a nonlinearity between them, y = W_n act(... act(W_1 x + b_1) ...) + b_n, on the pixels of an image as one
vector. The feed-forward network of a Transformer layer is one of these, at every token.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from headwise.blocks.feedforward import ACTIVATIONS
from headwise.blocks.images import ImageEncoder
from headwise.blocks.pool import Pool
from headwise.blocks.residual import make_dropout
from headwise.blocks.stack import Stack
from headwise.blocks.stream import Stream
from headwise.errors import UserError
from headwise.models.config import ModelConfig
from headwise.models.entry import Check, Entry
from headwise.models.image_classifier import ImageClassifier, ImageHead
from headwise.models.image_fields import ImageFields


class Perceptron(nn.Module):
    """The multi-layer perceptron without its last layer: linear layers with an activation after each, all pixels (B, C,
    H, W) -> one vector as a stream (B, 1, D)."""

    def __init__(self, inputs: int, widths: tuple[int, ...], activation: str, bias: bool, dropout: float):
        super().__init__()
        sizes = (inputs, *widths)
        self.layers = nn.ModuleList(nn.Linear(*pair, bias) for pair in pairwise(sizes))
        self.activation = ACTIVATIONS[activation]
        self.drop = make_dropout(dropout)

    def forward(self, pixels: Tensor) -> Stream:
        x = pixels.flatten(1)  # (B, C, H, W) -> (B, CHW)
        if x.shape[1] != self.layers[0].in_features:
            raise UserError(
                f"image: {pixels.shape[2]} x {pixels.shape[3]} pixels of {pixels.shape[1]} channels are "
                f"{x.shape[1]} values, but the first layer reads {self.layers[0].in_features}; resize the images"
            )
        for layer in self.layers:
            x = self.drop(self.activation(layer(x)))
        return Stream(x.unsqueeze(1), torch.zeros(1, dtype=torch.int64, device=x.device), grid=(1, 1))


class MlpClassifierConfig(ImageFields, ModelConfig):
    kind: Literal["mlp"] = "mlp"
    image: tuple[int, int] = (28, 28)
    channels: int = Field(1, ge=1)
    widths: tuple[int, ...] = Field((512, 512), min_length=1)  # of the hidden layers
    activation: Literal["relu", "gelu", "swish", "elu", "selu", "sigmoid", "softplus", "tanh"] = "relu"
    bias: bool = True
    dropout: float = Field(0.0, ge=0, lt=1)

    @property
    def output_width(self) -> int:
        return self.widths[-1]

    def encoder(self) -> ImageEncoder:
        inputs = self.channels * self.image[0] * self.image[1]
        return ImageEncoder(Perceptron(inputs, self.widths, self.activation, self.bias, self.dropout), Stack([]))

    def init_weights(self, model: nn.Module) -> None:
        """Matrices N(0, 2 / fan-in) (He et al. 2015), the last layer Xavier, biases zero."""
        for module in model.modules():
            if isinstance(module, nn.Linear):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def build(self, vocab: int = 0, outputs: int = 0, task: str = "") -> ImageClassifier:
        self.resolve_task(task)
        head = ImageHead(Pool("mean"), nn.Linear(self.output_width, outputs or 10, self.bias))
        model = ImageClassifier(self.encoder(), [head])
        self.init_weights(model)
        nn.init.xavier_uniform_(head.head.get_parameter("weight"))
        return model


SIZES: dict[str, dict[str, Any]] = {"small": {}, "tiny": {"image": 16, "widths": [16, 16]}}

ENTRY = Entry(
    name="mlp",
    paper="Rumelhart et al., Learning representations by back-propagating errors",
    year=1986,
    family="vision",
    config=MlpClassifierConfig,
    sizes=SIZES,
    vocab=0,
    outputs=10,
    checks=(Check("torch.nn.Sequential", "tests/models/test_mlp.py::test_it_is_a_sequence_of_torch_layers", "torch"),),
)
