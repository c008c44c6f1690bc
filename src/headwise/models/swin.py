"""Swin (Liu et al. 2021, "Swin Transformer: Hierarchical Vision Transformer using Shifted Windows") and Swin v2 (Liu et
al. 2022, "Swin Transformer V2: Scaling Up Capacity and Resolution").

Attention inside windows, which in every other layer are shifted by half a window. Between stages, patch merging turns 2
x 2 tokens into one of twice the width, so the grid shrinks as in a convolutional network. Version 2 has other defaults,
which keep activations from growing with depth: scaled cosine attention, res-post-norm, and a continuous position bias,
an MLP of the offsets, which works for every window size.

Where the shorter side of a grid fits into a window, version 1 has unshifted windows of that side.
DISCREPANCY: so has version 2 of the released code; here the windows of version 2 are as in `transformers`, which follow
from the rows of the configured image alone (they differ for images that are not square). Images whose sides are no
multiples of the patch are padded, as in `transformers`; the released code refuses them.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator
from torch import nn

from headwise.blocks.attention.scores import BoundedCosineConfig
from headwise.blocks.feedforward import Activation, MlpConfig
from headwise.blocks.grid import PatchMerging
from headwise.blocks.images import ImageEncoder, ImageStem, PatchEmbedding
from headwise.blocks.mixers.window_attention import WindowsConfig
from headwise.blocks.norm import LayerNormConfig
from headwise.blocks.part import BuildContext
from headwise.blocks.pool import Pool
from headwise.blocks.positions.absolute import NoPositionsConfig
from headwise.blocks.residual import PreNormConfig, ResidualAdd, ResPostNorm, ResPostNormConfig
from headwise.blocks.reversible import ReversibleConfig
from headwise.blocks.stack import Stack
from headwise.blocks.tables import AnyNorm, AnyPart, AnyPosition, AnyWiring
from headwise.models.config import ModelConfig
from headwise.models.entry import Check, Entry
from headwise.models.image_classifier import ImageClassifier, ImageHead
from headwise.models.image_fields import ImageFields
from headwise.models.init_weights import ImageInitFields, init_image_model

Count = Annotated[int, Field(ge=1)]
Merging = Literal["norm-first", "norm-last"]


class SwinFields(ImageFields, ImageInitFields):
    """Settings of both versions, and the methods that build their stages: `depths` layers with `heads` each; the first
    is `width` wide, each further one twice as wide."""

    fixed_windows: ClassVar[bool] = False  # follow from the configured image, not from the input
    patch: int = Field(4, ge=1)
    width: int = Field(96, ge=1)
    depths: tuple[Count, ...] = Field((2, 2, 6, 2), min_length=1)
    heads: tuple[Count, ...] = (3, 6, 12, 24)
    expand: float = Field(4.0, gt=0)  # hidden width of the feed-forward networks, relative to the stage's width
    activation: Activation = "gelu"
    window: int = Field(7, ge=1)  # tokens on a side
    mixer: AnyPart = WindowsConfig()  # gets the model's window, shifted by half of it in every other layer
    # window sizes in pretraining, by stage, which normalise the offsets of the continuous position bias
    pretrained_windows: tuple[Annotated[int, Field(ge=0)], ...] = ()
    feedforward: AnyPart = MlpConfig()
    positions: AnyPosition = NoPositionsConfig()
    wiring: AnyWiring = PreNormConfig()
    norm: AnyNorm = LayerNormConfig()
    dropout: float = Field(0.0, ge=0, lt=1)
    attention_dropout: float = Field(0.0, ge=0, lt=1)
    drop_path: float = Field(0.0, ge=0, lt=1)  # stochastic depth: rate of the last layer, linear from 0 at the first
    attention_bias: bool = True
    merging: Merging = "norm-first"  # norm before or after the linear layer of patch merging

    @model_validator(mode="after")
    def _check_stages(self) -> Self:
        if len(self.depths) != len(self.heads):
            raise ValueError(f"depths and heads: {len(self.depths)} stages and {len(self.heads)} are given; match them")
        if len(self.pretrained_windows) not in (0, len(self.depths)):
            raise ValueError(
                f"pretrained_windows: {len(self.pretrained_windows)} for {len(self.depths)} stages; match them"
            )
        if isinstance(self.wiring, ReversibleConfig):
            raise ValueError("wiring: 'reversible' needs the same width in all stages; use pre, post or respost")
        return self

    @property
    def output_width(self) -> int:
        return self.width * 2 ** (len(self.depths) - 1)

    def grid(self, patch: int) -> tuple[int, int]:
        """Rows and columns of patches, of which the last may be padded."""
        rows, columns = self.image
        return -(-rows // patch), -(-columns // patch)

    def encoder(self) -> ImageEncoder:
        patches = PatchEmbedding(self.channels, self.width, self.patch, pad=True)
        positions = self.positions.build_grid_positions(self.width, self.grid(self.patch), 0)
        stem = ImageStem(patches, self.width, 0, positions, self.dropout, self.norm.build(self.width))
        final = self.wiring.build().build_final_norm(lambda: self.norm.build(self.output_width))
        return ImageEncoder(stem, Stack([self.build_stage(number) for number in range(len(self.depths))], final))

    def build_stage(self, number: int) -> Stack:
        """Layers of one width, followed by patch merging unless it is the last stage."""
        build_ctx, wiring = self._build_context(number), self.wiring.build()
        last, before = sum(self.depths) - 1, sum(self.depths[:number])
        layers: list[nn.Module] = [
            wiring(
                [self.configure_mixer(number, layer).build(build_ctx), self.feedforward.build(build_ctx)],
                partial(self.norm.build, build_ctx.width),
                partial(ResidualAdd, self.dropout, self.drop_path * (before + layer) / max(last, 1)),
            )
            for layer in range(self.depths[number])
        ]
        return Stack(layers if before + len(layers) > last else [*layers, self.build_merging(build_ctx.width)])

    def configure_mixer(self, stage: int, layer: int) -> Any:
        """The mixer of one layer."""
        if not isinstance(self.mixer, WindowsConfig):
            return self.mixer
        pretrained = self.pretrained_windows[stage] if self.pretrained_windows else 0
        window, shift, size = self.choose_window(stage)
        return self.mixer.replace(
            window=window,
            shift=shift if layer % 2 else 0,
            clamp=not self.fixed_windows,
            pretrained_window=pretrained or size,
        )

    def choose_window(self, stage: int) -> tuple[int, int, int]:
        """The window of a stage, the shift of every other layer, and the window at the configured image size."""
        if self.fixed_windows:
            rows = max(self.image[0] // self.patch // 2**stage, 1)
            window = min(self.window, rows)
            return window, 0 if rows == window else window // 2, window
        sides = (-(-side // 2**stage) for side in self.grid(self.patch))  # merging rounds up
        return self.window, self.window // 2, min(self.window, *sides)

    def build_merging(self, width: int) -> nn.Module:
        """Patch merging: 2 x 2 tokens into one of twice the width."""
        linear = nn.Linear(4 * width, 2 * width, bias=False)
        if self.merging == "norm-first":
            return PatchMerging(nn.Sequential(self.norm.build(4 * width), linear))
        return PatchMerging(nn.Sequential(linear, self.norm.build(2 * width)))

    def build_classifier(self, outputs: int) -> ImageClassifier:
        """The encoder with a linear layer on the mean of its outputs."""
        model = ImageClassifier(self.encoder(), [ImageHead(Pool("mean"), nn.Linear(self.output_width, outputs))])
        self.init_weights(model)
        return model

    def init_weights(self, model: nn.Module) -> None:
        init_image_model(model, self.output_width, self.init)
        for layer in model.modules():
            if isinstance(layer, ResPostNorm):  # layers start as the identity, as in the released code
                for norm in layer.norms:
                    nn.init.zeros_(norm.get_parameter("weight"))

    def _build_context(self, stage: int) -> BuildContext:
        width = self.width << stage
        build_ctx = BuildContext(
            width=width,
            heads=self.heads[stage],
            hidden=int(self.expand * width),
            activation=self.activation,
            dropout=self.dropout,
            attention_dropout=self.attention_dropout,
            attention_bias=self.attention_bias,
        )
        return replace(build_ctx, build_score_mods=self.positions.make_score_mod_builder(build_ctx))


class SwinConfig(SwinFields, ModelConfig):
    kind: Literal["swin"] = "swin"

    def build(self, vocab: int = 0, outputs: int = 0, task: str = "") -> ImageClassifier:
        self.resolve_task(task)
        return self.build_classifier(outputs or 1000)


class SwinV2Config(SwinFields, ModelConfig):
    kind: Literal["swinv2"] = "swinv2"
    fixed_windows = True
    image: tuple[Count, Count] = (256, 256)
    window: int = Field(8, ge=1)
    mixer: AnyPart = WindowsConfig(position_bias="network", key_bias=False, score=BoundedCosineConfig())
    wiring: AnyWiring = ResPostNormConfig()
    merging: Merging = "norm-last"

    def build(self, vocab: int = 0, outputs: int = 0, task: str = "") -> ImageClassifier:
        self.resolve_task(task)
        return self.build_classifier(outputs or 1000)


DEEP: dict[str, Any] = {"depths": (2, 2, 18, 2)}
SIZES: dict[str, dict[str, Any]] = {
    "t": {},
    "s": DEEP,
    "b": {**DEEP, "width": 128, "heads": (4, 8, 16, 32)},
    "l": {**DEEP, "width": 192, "heads": (6, 12, 24, 48)},
    "tiny": {"image": 16, "channels": 1, "patch": 4, "window": 2, "width": 16, "depths": (2, 2), "heads": (2, 4)},
}
V2_SIZES = {size: SIZES[size] for size in ("t", "s", "b", "tiny")}

SWIN_ENTRY = Entry(
    name="swin",
    paper="Liu et al., Swin Transformer: Hierarchical Vision Transformer using Shifted Windows",
    year=2021,
    family="vision",
    config=SwinConfig,
    sizes=SIZES,
    vocab=0,
    outputs=1000,
    published={"t": "29M", "s": "50M", "b": "88M", "l": "197M"},
    checks=(
        Check(
            "transformers.SwinForImageClassification",
            "tests/parity/test_hf_swin.py::test_logits_stages_and_attention_are_equal",
            "transformers",
        ),
    ),
)

SWINV2_ENTRY = Entry(
    name="swinv2",
    paper="Liu et al., Swin Transformer V2: Scaling Up Capacity and Resolution",
    year=2022,
    family="vision",
    config=SwinV2Config,
    sizes=V2_SIZES,
    vocab=0,
    outputs=1000,
    published={"t": "28M", "s": "50M", "b": "88M"},
    checks=(
        Check(
            "transformers.Swinv2ForImageClassification",
            "tests/parity/test_hf_swin.py::test_logits_stages_and_attention_are_equal",
            "transformers",
        ),
    ),
)
