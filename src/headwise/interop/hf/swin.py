"""Swin and Swin v2 of `transformers`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field

from headwise.errors import UserError
from headwise.interop.hf.architecture import (
    ACTIVATIONS,
    COMPUTED,
    Architecture,
    HfActivation,
    WeightConverter,
    fuse,
    name_activation,
)
from headwise.interop.hf.images import (
    HfImageConfig,
    ImageSize,
    PatchSize,
    concatenate_vectors,
    flatten_kernel,
    to_pair,
)
from headwise.models.swin import SwinConfig, SwinV2Config

EPS = 1e-5  # of the norms that `layer_norm_eps` does not set


def _check_eps(eps: float) -> float:
    if eps != EPS:
        raise ValueError(f"only {EPS}, the value of all other norms in transformers, is supported")
    return eps


def _check_pretrained_windows(windows: tuple[int, ...]) -> tuple[int, ...]:
    if 1 in windows or min(windows, default=0) < 0:
        raise ValueError("must be 0 or at least 2: transformers divides by the size less one")
    return windows


class HfSwinConfig(HfImageConfig):
    aliases: ClassVar[Mapping[str, str]] = {"num_attention_heads": "num_heads", "num_hidden_layers": "num_layers"}
    # Derived from depths and embed_dim, outputs of a backbone, and a key of masked image modelling.
    ignored_keys = (
        *HfImageConfig.ignored_keys,
        *("num_layers", "hidden_size", "stage_names", "out_features", "out_indices", "encoder_stride", "path_norm"),
    )

    any_size = True
    model_type: Literal["swin"] = "swin"
    image_size: ImageSize = 224
    patch_size: PatchSize = 4
    embed_dim: int = Field(96, gt=0)
    depths: tuple[int, ...] = (2, 2, 6, 2)
    num_heads: tuple[int, ...] = (3, 6, 12, 24)
    window_size: int = Field(7, gt=0)
    mlp_ratio: float = 4.0
    qkv_bias: Literal[True] = True
    hidden_dropout_prob: float = 0.0
    attention_probs_dropout_prob: float = 0.0
    drop_path_rate: float = 0.1
    hidden_act: HfActivation = "gelu"
    use_absolute_embeddings: bool = False
    layer_norm_eps: Annotated[float, AfterValidator(_check_eps)] = EPS

    def to_settings(self, task: str, names: Collection[str]) -> dict[str, Any]:
        return {
            "image": to_pair(self.image_size),
            "channels": self.num_channels,
            "patch": self.patch_size,
            "width": self.embed_dim,
            "depths": self.depths,
            "heads": self.num_heads,
            "window": self.window_size,
            "expand": self.mlp_ratio,
            "activation": ACTIVATIONS[self.hidden_act],
            "positions": "grid" if self.use_absolute_embeddings else "none",
            "dropout": self.hidden_dropout_prob,
            "attention_dropout": self.attention_probs_dropout_prob,
            "drop_path": self.drop_path_rate,
        }

    def check_image_size(self, where: str) -> None:
        image = to_pair(self.image_size)
        if self.use_absolute_embeddings and any(side % self.patch_size for side in image):
            raise UserError(
                f"{where}: image_size: {image[0]} x {image[1]} pixels are no multiple of patch_size "
                f"{self.patch_size}, and transformers has no position embedding for padded patches; use other sizes"
            )
        self.check_windows(image, where)

    def check_windows(self, image: tuple[int, int], where: str) -> None:
        """In `transformers`, the position bias table of a window has no smaller windows."""
        last = 2 ** (len(self.depths) - 1)  # the stage with the smallest grid
        side = min(-(-side // self.patch_size) for side in image)
        if -(-side // last) < self.window_size:
            raise UserError(
                f"{where}: window_size: {self.window_size} is larger than the {-(-side // last)} tokens on the shorter "
                "side of the last stage, which transformers cannot compute; use larger images or smaller windows"
            )

    @classmethod
    def from_model_config(cls, config: Any, vocab: int) -> Self:
        return cls(**cls.build_keys(config))

    @classmethod
    def build_keys(cls, config: Any) -> dict[str, Any]:
        return {
            "image_size": config.image,
            "num_channels": config.channels,
            "patch_size": config.patch,
            "embed_dim": config.width,
            "depths": config.depths,
            "num_heads": config.heads,
            "window_size": config.window,
            "mlp_ratio": config.expand,
            "hidden_act": name_activation(config),
            "use_absolute_embeddings": config.positions.kind == "grid",
            "hidden_dropout_prob": config.dropout,
            "attention_probs_dropout_prob": config.attention_dropout,
            "drop_path_rate": config.drop_path,
        }


class HfSwinV2Config(HfSwinConfig):
    any_size = False  # windows follow from image_size
    model_type: Literal["swinv2"] = "swinv2"  # type: ignore[assignment]
    use_absolute_embeddings: Literal[False] = False  # `transformers` has one vector too many and fails
    pretrained_window_sizes: Annotated[tuple[int, ...], AfterValidator(_check_pretrained_windows)] = (0, 0, 0, 0)

    def to_settings(self, task: str, names: Collection[str]) -> dict[str, Any]:
        windows = self.pretrained_window_sizes[: len(self.depths)]
        return super().to_settings(task, names) | {"pretrained_windows": windows if any(windows) else ()}

    def check_windows(self, image: tuple[int, int], where: str) -> None:
        """In `transformers`, the rows of the last stage's grid, rounded down, limit the window."""
        if not image[0] // self.patch_size // 2 ** (len(self.depths) - 1):
            raise UserError(
                f"{where}: image_size: {image[0]} rows of pixels leave none to the last stage, which transformers "
                "cannot compute; use larger images"
            )

    @classmethod
    def build_keys(cls, config: Any) -> dict[str, Any]:
        return super().build_keys(config) | {
            "use_absolute_embeddings": False,
            "pretrained_window_sizes": config.pretrained_windows or (0,) * len(config.depths),
        }


LAYER = "encoder.stack.layers.{stage}.layers.{i}"
ATTENTION = f"{LAYER}.parts.0"


def map_base_model(prefix: str) -> tuple[dict[str, str | WeightConverter], str, str]:
    """Tensor names that both versions share; and the modules of self-attention and of patch merging."""
    hf_stage = f"{prefix}.encoder.layers.{{stage}}"
    hf_layer = f"{hf_stage}.blocks.{{i}}"
    name_map: dict[str, str | WeightConverter] = {
        "encoder.stem.patches.project": flatten_kernel(f"{prefix}.embeddings.patch_embeddings.projection"),
        "encoder.stem.norm": f"{prefix}.embeddings.norm",
        "encoder.stem.positions.table": concatenate_vectors(f"{prefix}.embeddings.position_embeddings"),
        f"{LAYER}.norms.0": f"{hf_layer}.layernorm_before",
        f"{ATTENTION}.qkv.project": fuse(*(f"{hf_layer}.attention.self.{part}" for part in ("query", "key", "value"))),
        f"{ATTENTION}.out": f"{hf_layer}.attention.output.dense",
        f"{LAYER}.norms.1": f"{hf_layer}.layernorm_after",
        f"{LAYER}.parts.1.inner": f"{hf_layer}.intermediate.dense",
        f"{LAYER}.parts.1.outer": f"{hf_layer}.output.dense",
        "encoder.stack.final": f"{prefix}.layernorm",
        "heads.0.head": "classifier",
    }
    return name_map, f"{hf_layer}.attention.self", f"{hf_stage}.downsample"


NAME_MAP, HF_SELF, HF_DOWNSAMPLE = map_base_model("swin")
SWIN = Architecture(
    hf_config=HfSwinConfig,
    config=SwinConfig,
    relatives=(SwinV2Config,),
    classes={"SwinForImageClassification": "classify-images", "SwinModel": "encode-images"},
    name_map={
        **NAME_MAP,
        f"{ATTENTION}.score_mods.0.table": WeightConverter((f"{HF_SELF}.relative_position_bias_table",)),
        f"{LAYER}.project.0": f"{HF_DOWNSAMPLE}.norm",
        f"{LAYER}.project.1": f"{HF_DOWNSAMPLE}.reduction",
    },
    base_prefix="swin.",
    ignored={r".*\.relative_position_index": COMPUTED},
)

NAME_MAP, HF_SELF, HF_DOWNSAMPLE = map_base_model("swinv2")
SWIN_V2 = Architecture(
    hf_config=HfSwinV2Config,
    config=SwinV2Config,
    relatives=(SwinConfig,),
    classes={"Swinv2ForImageClassification": "classify-images", "Swinv2Model": "encode-images"},
    name_map={
        **NAME_MAP,
        f"{ATTENTION}.qkv.bias": WeightConverter(
            (f"{HF_SELF}.query.bias", f"{HF_SELF}.value.bias"), write=lambda tensor, sizes: tensor.chunk(2)
        ),
        f"{ATTENTION}.score_mods.0.inner": f"{HF_SELF}.continuous_position_bias_mlp.0",
        f"{ATTENTION}.score_mods.0.outer": f"{HF_SELF}.continuous_position_bias_mlp.2",
        f"{ATTENTION}.score.log_factor": f"{HF_SELF}.logit_scale",
        f"{LAYER}.project.0": f"{HF_DOWNSAMPLE}.reduction",
        f"{LAYER}.project.1": f"{HF_DOWNSAMPLE}.norm",
    },
    base_prefix="swinv2.",
    ignored={r".*\.(relative_position_index|relative_coords_table)": COMPUTED},
)
