"""A small residual network for images of 28 x 28 or 32 x 32 pixels, as He et al. (2016, section 4.2) had for CIFAR-10:
one convolution of 3 x 3, then stages of basic residual blocks. A baseline for the other image models, and a teacher for
distillation.

DISCREPANCY: wider and shallower than the paper's, with projections where a shortcut changes its shape (option B).

`mixers` puts parts between the stages: `mixers = ["nonlocal"]` gives a non-local network (Wang et al. 2018); any other
mixer can be used too.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field
from torch import nn

from headwise.blocks.batchnorm import ConvNorm
from headwise.blocks.convolution import ConvStem, build_basic_block, build_residual_stages
from headwise.blocks.feedforward import relu
from headwise.blocks.images import ImageEncoder, ImageStem
from headwise.blocks.part import BuildContext
from headwise.blocks.pool import Pool
from headwise.blocks.residual import PreNorm
from headwise.blocks.stack import Stack
from headwise.blocks.tables import AnyPart
from headwise.models.config import ModelConfig
from headwise.models.entry import Check, Entry
from headwise.models.image_classifier import ImageClassifier, ImageHead
from headwise.models.image_fields import ImageFields
from headwise.models.init_weights import init_residual


class CnnConfig(ImageFields, ModelConfig):
    kind: Literal["cnn"] = "cnn"
    image: tuple[int, int] = (28, 28)
    channels: int = Field(1, ge=1)
    width: int = Field(32, ge=1)  # of the first stage; each stage is twice as wide as the one before
    stride: int = Field(1, ge=1)  # of the first convolution; larger for large images or speed
    depths: tuple[int, ...] = Field((1, 1, 1), min_length=1)  # layers of each stage
    mixers: tuple[AnyPart, ...] = ()  # parts at the end of a stage, each with a residual add
    mixer_stages: tuple[int, ...] = (2,)  # at the end of which stages, counted from 1
    heads: int = Field(4, ge=1)  # of mixers that have heads

    @property
    def widths(self) -> tuple[int, ...]:
        """Width of each stage."""
        return tuple(self.width * 2**stage for stage in range(len(self.depths)))

    @property
    def output_width(self) -> int:
        return self.widths[-1]

    def encoder(self) -> ImageEncoder:
        first = ConvNorm(self.channels, self.width, 3, self.stride, relu)
        stages = build_residual_stages(self.width, self.widths, self.depths, build_basic_block)
        for number in self.mixer_stages if self.mixers else ():
            stages[number - 1] = Stack([*stages[number - 1].layers, *self._mixer_layers(self.widths[number - 1])])
        return ImageEncoder(ImageStem(ConvStem(self.channels, first), self.width), Stack(stages))

    def init_weights(self, model: nn.Module) -> None:
        init_residual(model)

    def build(self, vocab: int = 0, outputs: int = 0, task: str = "") -> ImageClassifier:
        self.resolve_task(task)
        model = ImageClassifier(
            self.encoder(), [ImageHead(Pool("mean"), nn.Linear(self.output_width, outputs or 1000))]
        )
        self.init_weights(model)
        return model

    def _mixer_layers(self, width: int) -> list[nn.Module]:
        """One layer for each mixer."""
        build_ctx = BuildContext(width=width, heads=self.heads, hidden=4 * width)
        return [PreNorm([part.build(build_ctx)], nn.Identity) for part in self.mixers]


SIZES: dict[str, dict[str, Any]] = {
    "small": {},
    "tiny": {"image": 16, "width": 8},
}

ENTRY = Entry(
    name="cnn",
    paper="after He et al., Deep Residual Learning for Image Recognition, section 4.2",
    year=2016,
    family="vision",
    config=CnnConfig,
    sizes=SIZES,
    vocab=0,
    outputs=10,
    checks=(
        Check(
            "transformers.ResNetForImageClassification with another first layer",
            "tests/parity/test_hf_levit.py::test_the_small_residual_network_is_that_of_transformers_with_another_first_layer",
            "transformers",
        ),
    ),
)
