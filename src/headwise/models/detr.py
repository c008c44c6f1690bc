"""DETR (Carion et al. 2020, "End-to-End Object Detection with Transformers"): object detection as set prediction.

An encoder reads the last feature map of a convolutional backbone; a decoder without causal mask and token embeddings
attends to it with learned object queries. Positions are added to queries and keys in every layer. Both stacks are
post-norm, with one more norm after the decoder's layers. Reference: transformers' DetrForObjectDetection.

DISCREPANCY: with auxiliary losses, transformers feeds the final norm of each decoder layer to the next one, and it has
dropout on the inputs of its encoder; the released code and we do neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from pydantic import Field
from torch import nn

from headwise.blocks.detection import (
    MEMORY_POSITIONS,
    POSITIONS,
    ObjectQueries,
    PositionedAttentionConfig,
    SinePositions,
)
from headwise.blocks.part import BuildContext
from headwise.blocks.positions.absolute import NoPositionsConfig
from headwise.blocks.stack import Stack
from headwise.blocks.tables import AnyPart, AnyPosition
from headwise.config.base import Table, slot
from headwise.errors import UserError
from headwise.models.cnn import CnnConfig
from headwise.models.config import ModelConfig
from headwise.models.detector import BackboneStem, Detector, PaddedEncoder
from headwise.models.entry import Check, Entry
from headwise.models.image_fields import ImageFields, Side
from headwise.models.init_weights import init_xavier
from headwise.models.layers import OneStackFields, Parts, StackConfig, build_context, build_stack
from headwise.models.resnet import ResNetConfig
from headwise.models.vit import ViTConfig

BACKBONES = Table("backbone", default="resnet")  # image encoders, without head
for _config in (CnnConfig, ResNetConfig, ViTConfig):
    BACKBONES.add(_config)

if TYPE_CHECKING:
    AnyBackbone: TypeAlias = Any
else:
    AnyBackbone = slot(BACKBONES)


class DetrConfig(OneStackFields, ImageFields, ModelConfig):
    """`depth` is that of the encoder, and of the decoder unless `decoder.depth` is set."""

    tasks = ("detect",)
    kind: Literal["detr"] = "detr"
    image: tuple[Side, Side] = (800, 1066)
    backbone: AnyBackbone = ResNetConfig(norm="frozen")
    # number of frozen stages of the backbone, of which its stem is the first
    frozen_stages: int = Field(2, ge=0)
    backbone_lr_scale: float = Field(0.1, gt=0)  # learning rate of its other stages, relative to train.lr
    queries: int = Field(100, ge=1)  # object queries: the most objects that can be found in an image
    width: int = Field(256, ge=1)
    hidden: int = Field(2048, ge=0)
    depth: int = Field(6, ge=1)
    decoder: StackConfig = StackConfig(depth=6)
    mixer: AnyPart = PositionedAttentionConfig()
    cross_attention: AnyPart = PositionedAttentionConfig(attend_to="memory")
    positions: AnyPosition = NoPositionsConfig()

    def stacks(self) -> tuple[StackConfig, StackConfig]:
        return self.stack, self.decoder

    def pattern(self, memory: bool = False) -> tuple[Parts, ...]:
        return ((self.mixer, *((self.cross_attention,) if memory else ()), self.feedforward),)

    def encoder(self) -> PaddedEncoder:
        features = self.backbone.with_image_size(*self.image, self.channels)
        stem = BackboneStem(features.encoder(), features.output_width, self.width)
        return PaddedEncoder(stem, build_stack(self, self.stack, build_ctx=self._build_context(memory=False)))

    def build_object_decoder(self) -> Stack:
        """The decoder over object queries; it ends with a norm for every wiring."""
        if self.output_width != self.width:
            raise UserError("wiring: object queries cannot end in the two halves of reversible layers; use pre or post")
        stack = build_stack(self, self.decoder, memory=True, build_ctx=self._build_context(memory=True))
        stack.final = self.norm.build(self.width)
        if not any(isinstance(module, ObjectQueries) for module in stack.modules()):
            raise UserError("cross_attention: no part of the decoder has the object queries; use 'positioned'")
        return stack

    def _build_context(self, memory: bool) -> BuildContext:
        build_ctx = build_context(self, memory=memory)
        positions = ObjectQueries(self.queries, self.width) if memory else SinePositions(self.width)
        return replace(build_ctx, shared={POSITIONS: positions, MEMORY_POSITIONS: SinePositions(self.width)})

    def init_weights(self, model: nn.Module) -> None:
        """As in the released code: the backbone's own initialisation, layers Xavier-uniform, object queries N(0, 1),
        and heads torch's default."""
        self.backbone.init_weights(model.get_submodule("encoder.stem.backbone"))
        for stack in ("encoder.stack", "decoder"):
            init_xavier(model.get_submodule(stack))

    def build(self, vocab: int = 0, outputs: int = 0, task: str = "") -> Any:
        self.resolve_task(task)
        model = Detector(self.encoder(), self.build_object_decoder(), self.queries, self.width, outputs)
        self.init_weights(model)
        self._freeze_stages(model.encoder.stem.backbone)
        return model

    def _freeze_stages(self, backbone: Any) -> None:
        """Freeze the backbone's lower stages."""
        for stage in (backbone.stem, *backbone.stack.layers)[: self.frozen_stages]:
            stage.requires_grad_(False)

    def lr_scales(self) -> Mapping[str, float]:
        return {"encoder.stem.backbone": self.backbone_lr_scale}


SIZES: dict[str, dict[str, Any]] = {
    "r50": {},
    "r101": {"backbone": {"kind": "resnet", "depths": (3, 4, 23, 3), "norm": "frozen"}},
    "small": {
        "image": 64,
        "backbone": {"kind": "resnet", "width": 32, "depths": (1, 1), "bottleneck": False},
        "frozen_stages": 0,
        "backbone_lr_scale": 1.0,
        "queries": 12,
        "width": 128,
        "heads": 4,
        "hidden": 256,
        "depth": 2,
        "decoder": {"depth": 3},
        "dropout": 0.0,
    },
    "tiny": {
        "image": 16,
        "channels": 1,
        "backbone": {"kind": "resnet", "width": 8, "depths": (1, 1), "bottleneck": False},
        "frozen_stages": 0,
        "backbone_lr_scale": 1.0,
        "queries": 4,
        "width": 32,
        "heads": 4,
        "hidden": 64,
        "depth": 1,
        "decoder": {"depth": 2},
    },
}

ENTRY = Entry(
    name="detr",
    paper="Carion et al., End-to-End Object Detection with Transformers",
    year=2020,
    family="vision",
    config=DetrConfig,
    sizes=SIZES,
    vocab=0,
    outputs=91,
    published={"r50": "41M", "r101": "60M"},
    checks=(
        Check(
            "transformers.DetrForObjectDetection",
            "tests/parity/test_hf_detr.py::test_outputs_are_equal_both_ways",
            "transformers",
        ),
    ),
)
