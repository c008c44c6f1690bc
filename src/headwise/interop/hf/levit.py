"""LeViT of `transformers`."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from headwise.interop.hf.architecture import COMPUTED, Architecture, WeightConverter
from headwise.interop.hf.bert import has_tensor
from headwise.interop.hf.images import HfImageConfig
from headwise.models.levit import LevitConfig

PATCH: Literal[16] = 16
STAGES = 3  # with downsampling after the first and the second
PerStage = Annotated[tuple[int, ...], Field(min_length=STAGES, max_length=STAGES)]
DownOp = tuple[str | int, ...]


class HfLevitConfig(HfImageConfig):
    """Key and value widths must be equal in all stages."""

    image_processor = "LevitImageProcessor"
    model_type: Literal["levit"] = "levit"
    image_size: int = Field(224, gt=0)
    kernel_size: Literal[3] = 3
    stride: Literal[2] = 2
    padding: Literal[1] = 1
    patch_size: Literal[16] = PATCH
    hidden_sizes: PerStage = (128, 256, 384)
    num_attention_heads: PerStage = (4, 8, 12)
    depths: PerStage = (4, 4, 4)
    key_dim: PerStage = (16, 16, 16)
    drop_path_rate: int | float = 0
    mlp_ratio: tuple[Literal[2], ...] = (2, 2, 2)
    attention_ratio: PerStage = (2, 2, 2)
    down_ops: tuple[DownOp, ...] = ()  # "Subsample", key_dim, heads, attention_ratio, mlp_ratio, stride

    @model_validator(mode="after")
    def _check_equal(self) -> Self:
        for name in ("key_dim", "attention_ratio"):
            if len(set(getattr(self, name))) > 1:
                raise ValueError(f"{name} must be equal in all stages")
        if self.down_ops and self.down_ops[: STAGES - 1] != self.build_down_ops():
            raise ValueError("down_ops other than those that follow from hidden_sizes and key_dim are not supported")
        return self

    def build_down_ops(self) -> tuple[DownOp, ...]:
        """The `down_ops` of every released model."""
        width = self.key_dim[0]
        return tuple(("Subsample", width, channels // width, 4, 2, 2) for channels in self.hidden_sizes[:-1])

    def to_settings(self, task: str, names: Collection[str]) -> dict[str, Any]:
        return {
            "image": self.image_size // PATCH * PATCH,  # `transformers` fails on other sizes
            "channels": self.num_channels,
            "widths": self.hidden_sizes,
            "depths": self.depths,
            "heads": self.num_attention_heads,
            "head_width": self.key_dim[0],
            "mixer": {"kind": "levit", "value_expand": self.attention_ratio[0]},
            "drop_path": self.drop_path_rate,
            "class_heads": 2 if has_tensor(names, "classifier_distill.linear.weight") else 1,
        }

    @classmethod
    def from_model_config(cls, config: Any, vocab: int) -> Self:
        # drop_path_rate is an integer in `transformers`, so it is not written.
        hf_config = cls(
            image_size=config.image[0],
            num_channels=config.channels,
            hidden_sizes=fit_stages(config.widths),
            num_attention_heads=fit_stages(config.heads),
            depths=fit_stages(config.depths),
            key_dim=(config.head_width,) * STAGES,
            attention_ratio=(getattr(config.mixer, "value_expand", 2),) * STAGES,
        )
        with_down_ops: Self = hf_config.replace(down_ops=hf_config.build_down_ops())
        return with_down_ops


def fit_stages(values: tuple[int, ...]) -> tuple[int, ...]:
    """Values for exactly three stages. `choose_architecture` refuses a model with more or fewer, as it reads back
    differently."""
    return (*values, *(0,) * STAGES)[:STAGES]


def map_linear(name: str, hf_name: str) -> dict[str, str | WeightConverter]:
    """A linear layer with its batch norm."""
    return {f"{name}.linear": f"{hf_name}.linear", f"{name}.norm": f"{hf_name}.batch_norm"}


def map_stem_convolution(number: int) -> dict[str, str | WeightConverter]:
    """A convolution of the stem."""
    name, hf_name = f"encoder.stem.patches.layers.{number}", f"levit.patch_embeddings.embedding_layer_{number + 1}"
    return {f"{name}.conv": f"{hf_name}.convolution", f"{name}.norm": f"{hf_name}.batch_norm"}


LAYER, HF_LAYER = "encoder.stack.layers.{stage}.layers.{i}", "levit.encoder.stages.{stage}.layers.{i}"
LEVIT = Architecture(
    hf_config=HfLevitConfig,
    config=LevitConfig,
    classes={
        "LevitForImageClassificationWithTeacher": "classify-images",
        "LevitForImageClassification": "classify-images",
        "LevitModel": "encode-images",
    },
    name_map={
        **{name: hf_name for number in range(4) for name, hf_name in map_stem_convolution(number).items()},
        **map_linear(f"{LAYER}.parts.0.qkv.project", f"{HF_LAYER}.module.queries_keys_values"),
        f"{LAYER}.parts.0.score_mods.0.scores": f"{HF_LAYER}.module.attention_biases",
        **map_linear(f"{LAYER}.parts.0.out.1", f"{HF_LAYER}.module.projection"),
        **map_linear(f"{LAYER}.parts.0.inner", f"{HF_LAYER}.module.linear_up"),
        **map_linear(f"{LAYER}.parts.0.outer", f"{HF_LAYER}.module.linear_down"),
        **map_linear(f"{LAYER}.attention.qkv.query", f"{HF_LAYER}.queries"),
        **map_linear(f"{LAYER}.attention.qkv.project", f"{HF_LAYER}.keys_values"),
        f"{LAYER}.attention.score_mods.0.scores": f"{HF_LAYER}.attention_biases",
        **map_linear(f"{LAYER}.attention.out.1", f"{HF_LAYER}.projection"),
        **map_linear("heads.0.head", "classifier"),
        **map_linear("heads.1.head", "classifier_distill"),
    },
    required_tensors={"LevitForImageClassificationWithTeacher": "heads.1.head.linear.weight"},
    base_prefix="levit.",
    ignored={r".*\.attention_bias_idxs": COMPUTED},
)
