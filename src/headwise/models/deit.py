"""DeiT, the data-efficient image Transformer (Touvron et al. 2021): a ViT with a distillation token beside the class
token, whose head is trained on a teacher's predictions (`task.teacher`). At inference the two heads' logits are
averaged (section 4).

Without the distillation token it is a ViT with the paper's training recipe (experiments/fashion-deit.toml).
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field
from torch import nn

from headwise.blocks.feedforward import Activation
from headwise.blocks.images import ImageEncoder, ImageStem, PatchEmbedding, TakeClassToken
from headwise.blocks.norm import LayerNormConfig
from headwise.blocks.positions.grid import LearnedGridPositionsConfig
from headwise.blocks.residual import PreNormConfig
from headwise.blocks.tables import AnyNorm, AnyPosition, AnyWiring
from headwise.models.config import ModelConfig, PoolKind
from headwise.models.entry import Check, Entry
from headwise.models.image_classifier import ImageClassifier, ImageHead
from headwise.models.image_fields import ImageFields
from headwise.models.init_weights import ImageInitFields, init_image_model
from headwise.models.layers import OneStackFields, build_stack


class DeiTConfig(OneStackFields, ImageFields, ImageInitFields, ModelConfig):
    kind: Literal["deit"] = "deit"
    patch: int = Field(16, ge=1)
    class_tokens: int = Field(2, ge=1)
    class_heads: int = Field(0, ge=0)  # number of class tokens with a head, counted from the first; 0: all
    width: int = Field(768, ge=1)
    heads: int = Field(12, ge=1)
    depth: int = Field(12, ge=1)
    activation: Activation = "gelu"
    positions: AnyPosition = LearnedGridPositionsConfig()
    wiring: AnyWiring = PreNormConfig()
    norm: AnyNorm = LayerNormConfig(eps=1e-6)
    dropout: float = Field(0.0, ge=0, lt=1)
    drop_path: float = Field(0.1, ge=0, lt=1)
    pool: PoolKind = "mean"  # of an encoder without heads

    @property
    def pooling(self) -> str:
        return self.pool

    def encoder(self) -> ImageEncoder:
        patches = PatchEmbedding(self.channels, self.width, self.patch)
        positions = self.positions.build_grid_positions(self.width, self.grid(self.patch), self.class_tokens)
        stem = ImageStem(patches, self.width, self.class_tokens, positions, self.dropout)
        return ImageEncoder(stem, build_stack(self, self.stack))

    def init_weights(self, model: nn.Module) -> None:
        init_image_model(model, self.output_width, self.init)

    def build(self, vocab: int = 0, outputs: int = 0, task: str = "") -> ImageClassifier:
        self.resolve_task(task)
        count = min(self.class_heads or self.class_tokens, self.class_tokens)
        heads = [
            ImageHead(TakeClassToken(number), nn.Linear(self.output_width, outputs or 1000)) for number in range(count)
        ]
        model = ImageClassifier(self.encoder(), heads)
        self.init_weights(model)
        return model


PLAIN = {"class_tokens": 1}
TI, S = {"width": 192, "heads": 3}, {"width": 384, "heads": 6}
SIZES: dict[str, dict[str, Any]] = {
    "b-distilled": {},
    "s-distilled": S,
    "ti-distilled": TI,
    "b-distilled-384": {"image": 384},
    "b": PLAIN,
    "s": {**PLAIN, **S},
    "ti": {**PLAIN, **TI},
    "b-384": {**PLAIN, "image": 384},
    "tiny": {"image": 16, "channels": 1, "patch": 4, "width": 32, "heads": 4, "depth": 2},
}

ENTRY = Entry(
    name="deit",
    paper="Touvron et al., Training data-efficient image transformers & distillation through attention",
    year=2021,
    family="vision",
    config=DeiTConfig,
    sizes=SIZES,
    vocab=0,
    outputs=1000,
    published={"b": "86M", "s": "22M", "ti": "5M"},
    checks=(
        Check(
            "transformers.DeiTForImageClassificationWithTeacher",
            "tests/parity/test_hf_vit.py::test_both_heads_of_a_distilled_model_are_equal",
            "transformers",
        ),
        Check("timm deit_*_distilled (by hand, outside the test suite)", "benchmarks/timm_parity.py", "timm"),
    ),
)
