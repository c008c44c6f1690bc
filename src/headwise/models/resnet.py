"""ResNet (He et al. 2016, "Deep Residual Learning for Image Recognition"): a convolution of 7 x 7, four stages of
residual blocks, each but the first with stride 2 and twice as wide, and global average pooling.

`ResNetConfig(norm="frozen").encoder()` is the backbone of detectors. Reference: transformers'
ResNetForImageClassification with `downsample_in_bottleneck = False`.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

from pydantic import Field
from torch import nn

from headwise.blocks.batchnorm import ConvNorm, FrozenNorm
from headwise.blocks.convolution import ConvStem, build_basic_block, build_bottleneck_block, build_residual_stages
from headwise.blocks.feedforward import relu
from headwise.blocks.images import ImageEncoder, ImageStem
from headwise.blocks.pool import Pool
from headwise.blocks.stack import Stack
from headwise.models.config import ModelConfig
from headwise.models.entry import Check, Entry
from headwise.models.image_classifier import ImageClassifier, ImageHead
from headwise.models.image_fields import ImageFields
from headwise.models.init_weights import init_residual


class ResNetConfig(ImageFields, ModelConfig):
    kind: Literal["resnet"] = "resnet"
    width: int = Field(64, ge=1)  # of the first stage, inside its layers
    depths: tuple[int, ...] = Field((3, 4, 6, 3), min_length=1)  # layers of each stage
    bottleneck: bool = True  # blocks of 1 x 1, 3 x 3 and 1 x 1 convolutions; else basic blocks of two 3 x 3
    norm: Literal["batch", "frozen"] = "batch"

    @property
    def widths(self) -> tuple[int, ...]:
        """Output width of each stage."""
        return tuple(self.width * (4 if self.bottleneck else 1) * 2**stage for stage in range(len(self.depths)))

    @property
    def output_width(self) -> int:
        return self.widths[-1]

    def encoder(self) -> ImageEncoder:
        norm = FrozenNorm if self.norm == "frozen" else nn.BatchNorm2d
        layer = build_bottleneck_block if self.bottleneck else build_basic_block
        first = ConvNorm(self.channels, self.width, 7, 2, relu, norm)
        stem = ImageStem(ConvStem(self.channels, first, nn.MaxPool2d(3, 2, padding=1)), self.width)
        stages = build_residual_stages(self.width, self.widths, self.depths, partial(layer, norm=norm))
        return ImageEncoder(stem, Stack(stages))

    def init_weights(self, model: nn.Module) -> None:
        init_residual(model)

    def build(self, vocab: int = 0, outputs: int = 0, task: str = "") -> ImageClassifier:
        self.resolve_task(task)
        model = ImageClassifier(
            self.encoder(), [ImageHead(Pool("mean"), nn.Linear(self.output_width, outputs or 1000))]
        )
        self.init_weights(model)
        return model


SIZES: dict[str, dict[str, Any]] = {
    "50": {},
    "18": {"depths": (2, 2, 2, 2), "bottleneck": False},
    "34": {"bottleneck": False},
    "101": {"depths": (3, 4, 23, 3)},
    "tiny": {"image": 32, "channels": 1, "width": 8, "depths": (1, 1, 1)},
}

ENTRY = Entry(
    name="resnet",
    paper="He et al., Deep Residual Learning for Image Recognition",
    year=2016,
    family="vision",
    config=ResNetConfig,
    sizes=SIZES,
    vocab=0,
    outputs=1000,
    published={"18": "11.7M", "34": "21.8M", "50": "25.6M", "101": "44.5M"},
    checks=(
        Check(
            "transformers.ResNetForImageClassification",
            "tests/parity/test_hf_levit.py::test_import_and_export_keep_outputs",
            "transformers",
        ),
    ),
)
