"""LeViT of `transformers`."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from headwise.interop.hf.architecture import COMPUTED, Architecture, Key
from headwise.interop.hf.bert import has
from headwise.interop.hf.images import TheirImages
from headwise.models.levit import LevitConfig

PATCH: Literal[16] = 16
STAGES = 3  # theirs shrink after the first and the second stage
Three = Annotated[tuple[int, ...], Field(min_length=STAGES, max_length=STAGES)]
Shrinking = tuple[str | int, ...]


class TheirLevit(TheirImages):
    """Keys and values of one width in all stages, and images of whole patches."""

    model_type: Literal["levit"] = "levit"
    image_size: int = Field(224, gt=0)
    kernel_size: Literal[3] = 3
    stride: Literal[2] = 2
    padding: Literal[1] = 1
    patch_size: Literal[16] = PATCH
    hidden_sizes: Three = (128, 256, 384)
    num_attention_heads: Three = (4, 8, 12)
    depths: Three = (4, 4, 4)
    key_dim: Three = (16, 16, 16)
    drop_path_rate: int | float = 0
    mlp_ratio: tuple[Literal[2], ...] = (2, 2, 2)
    attention_ratio: Three = (2, 2, 2)
    down_ops: tuple[Shrinking, ...] = ()  # what shrinks, with key width, heads, values, hidden channels and stride

    @model_validator(mode="after")
    def _alike(self) -> Self:
        for name in ("key_dim", "attention_ratio"):
            if len(set(getattr(self, name))) > 1:
                raise ValueError(f"{name} differs between stages, and here it cannot")
        if self.down_ops and self.down_ops[: STAGES - 1] != self.shrinking():
            raise ValueError("down_ops are not those that follow from hidden_sizes and key_dim")
        return self

    def shrinking(self) -> tuple[Shrinking, ...]:
        """The `down_ops` of every released model."""
        width = self.key_dim[0]
        return tuple(("Subsample", width, channels // width, 4, 2, 2) for channels in self.hidden_sizes[:-1])

    def ours(self, task: str, names: Collection[str]) -> dict[str, Any]:
        return {
            "image": self.image_size // PATCH * PATCH,  # theirs fails on others
            "channels": self.num_channels,
            "widths": self.hidden_sizes,
            "depths": self.depths,
            "heads": self.num_attention_heads,
            "head_width": self.key_dim[0],
            "mixer": {"kind": "levit", "value_expand": self.attention_ratio[0]},
            "drop_path": self.drop_path_rate,
            "class_heads": 2 if has(names, "classifier_distill.linear.weight") else 1,
        }

    @classmethod
    def of(cls, config: Any, vocab: int) -> Self:
        # Their schema has a whole number for how often branches are left out in training, so it stays unsaid.
        said = cls(
            image_size=config.image[0],
            num_channels=config.channels,
            hidden_sizes=three(config.widths),
            num_attention_heads=three(config.heads),
            depths=three(config.depths),
            key_dim=(config.head_width,) * STAGES,
            attention_ratio=(getattr(config.mixer, "value_expand", 2),) * STAGES,
        )
        found: Self = said.replace(down_ops=said.shrinking())
        return found


def three(values: tuple[int, ...]) -> tuple[int, ...]:
    """As many as there are stages; a model of more or fewer does not come back the same, so it is refused."""
    return (*values, *(0,) * STAGES)[:STAGES]


def normed(ours: str, theirs: str) -> dict[str, str | Key]:
    """A linear map with its batch norm."""
    return {f"{ours}.linear": f"{theirs}.linear", f"{ours}.norm": f"{theirs}.batch_norm"}


def stem(number: int) -> dict[str, str | Key]:
    """A convolution of the stem."""
    ours, theirs = f"encoder.stem.patches.layers.{number}", f"levit.patch_embeddings.embedding_layer_{number + 1}"
    return {f"{ours}.conv": f"{theirs}.convolution", f"{ours}.norm": f"{theirs}.batch_norm"}


LAYER, INSIDE = "encoder.stack.layers.{stage}.layers.{i}", "levit.encoder.stages.{stage}.layers.{i}"
LEVIT = Architecture(
    theirs=TheirLevit,
    config=LevitConfig,
    classes={
        "LevitForImageClassificationWithTeacher": "classify-images",
        "LevitForImageClassification": "classify-images",
        "LevitModel": "encode-images",
    },
    keys={
        **{ours: theirs for number in range(4) for ours, theirs in stem(number).items()},
        **normed(f"{LAYER}.parts.0.qkv.project", f"{INSIDE}.module.queries_keys_values"),
        f"{LAYER}.parts.0.score_mods.0.scores": f"{INSIDE}.module.attention_biases",
        **normed(f"{LAYER}.parts.0.out.1", f"{INSIDE}.module.projection"),
        **normed(f"{LAYER}.parts.0.inner", f"{INSIDE}.module.linear_up"),
        **normed(f"{LAYER}.parts.0.outer", f"{INSIDE}.module.linear_down"),
        **normed(f"{LAYER}.attention.qkv.query", f"{INSIDE}.queries"),
        **normed(f"{LAYER}.attention.qkv.project", f"{INSIDE}.keys_values"),
        f"{LAYER}.attention.score_mods.0.scores": f"{INSIDE}.attention_biases",
        **normed(f"{LAYER}.attention.out.1", f"{INSIDE}.projection"),
        **normed("heads.0.head", "classifier"),
        **normed("heads.1.head", "classifier_distill"),
    },
    hints={"LevitForImageClassificationWithTeacher": "heads.1.head.linear.weight"},
    stem="levit.",
    ignored={r".*\.attention_bias_idxs": COMPUTED},
)
