"""Swin and Swin v2 of `transformers`.

DISCREPANCY: of images that are no squares, where one side fits into a window, they shift no windows at all; here they
are shifted along the other side (blocks/grid.py).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field

from headwise.interop.hf.architecture import COMPUTED, OURS, Architecture, Key, Plain, activation_of, fused
from headwise.interop.hf.images import Sides, TheirImages, kernel, pair, vectors
from headwise.models.swin import SwinConfig, SwinV2Config

EPS = 1e-5  # of the norms that they have no key for


def _as_others(eps: float) -> float:
    if eps != EPS:
        raise ValueError(f"only {EPS}, which their other norms have, is supported")
    return eps


class TheirSwin(TheirImages):
    aliases: ClassVar[Mapping[str, str]] = {"num_attention_heads": "num_heads", "num_hidden_layers": "num_layers"}
    # What follows from depths and embed_dim, what a backbone gives, and a decoder of masked images.
    unread = (
        *TheirImages.unread,
        *("num_layers", "hidden_size", "stage_names", "out_features", "out_indices", "encoder_stride", "path_norm"),
    )

    model_type: Literal["swin"] = "swin"
    image_size: Sides = 224
    patch_size: int = Field(4, gt=0)
    embed_dim: int = Field(96, gt=0)
    depths: tuple[int, ...] = (2, 2, 6, 2)
    num_heads: tuple[int, ...] = (3, 6, 12, 24)
    window_size: int = Field(7, gt=0)
    mlp_ratio: float = 4.0
    qkv_bias: Literal[True] = True
    hidden_dropout_prob: float = 0.0
    attention_probs_dropout_prob: float = 0.0
    drop_path_rate: float = 0.1
    hidden_act: Plain = "gelu"
    use_absolute_embeddings: bool = False
    layer_norm_eps: Annotated[float, AfterValidator(_as_others)] = EPS

    def ours(self, task: str, names: Collection[str]) -> dict[str, Any]:
        return {
            "image": pair(self.image_size),
            "channels": self.num_channels,
            "patch": self.patch_size,
            "width": self.embed_dim,
            "depths": self.depths,
            "heads": self.num_heads,
            "window": self.window_size,
            "expand": self.mlp_ratio,
            "activation": OURS[self.hidden_act],
            "positions": "grid" if self.use_absolute_embeddings else "none",
            "dropout": self.hidden_dropout_prob,
            "attention_dropout": self.attention_probs_dropout_prob,
            "drop_path": self.drop_path_rate,
        }

    @classmethod
    def of(cls, config: Any, vocab: int) -> Self:
        return cls(**cls.said(config))

    @classmethod
    def said(cls, config: Any) -> dict[str, Any]:
        return {
            "image_size": config.image,
            "num_channels": config.channels,
            "patch_size": config.patch,
            "embed_dim": config.width,
            "depths": config.depths,
            "num_heads": config.heads,
            "window_size": config.window,
            "mlp_ratio": config.expand,
            "hidden_act": activation_of(config),
            "use_absolute_embeddings": config.positions.kind == "grid",
            "hidden_dropout_prob": config.dropout,
            "attention_probs_dropout_prob": config.attention_dropout,
            "drop_path_rate": config.drop_path,
        }


class TheirSwinV2(TheirSwin):
    model_type: Literal["swinv2"] = "swinv2"  # type: ignore[assignment]
    pretrained_window_sizes: tuple[int, ...] = (0, 0, 0, 0)

    def ours(self, task: str, names: Collection[str]) -> dict[str, Any]:
        reaches = self.pretrained_window_sizes[: len(self.depths)]
        return super().ours(task, names) | {"pretrained_windows": reaches if any(reaches) else ()}

    @classmethod
    def said(cls, config: Any) -> dict[str, Any]:
        return super().said(config) | {
            "pretrained_window_sizes": config.pretrained_windows or (0,) * len(config.depths)
        }


LAYER = "encoder.stack.layers.{stage}.layers.{i}"
LOOK = f"{LAYER}.parts.0"


def columns(stem: str) -> tuple[dict[str, str | Key], str, str]:
    """The names that both versions have, and where one of their layers and a merging are."""
    stage = f"{stem}.encoder.layers.{{stage}}"
    inside = f"{stage}.blocks.{{i}}"
    keys: dict[str, str | Key] = {
        "encoder.stem.patches.project": kernel(f"{stem}.embeddings.patch_embeddings.projection"),
        "encoder.stem.norm": f"{stem}.embeddings.norm",
        "encoder.stem.positions.table": vectors(f"{stem}.embeddings.position_embeddings"),
        f"{LAYER}.norms.0": f"{inside}.layernorm_before",
        f"{LOOK}.qkv.project": fused(*(f"{inside}.attention.self.{part}" for part in ("query", "key", "value"))),
        f"{LOOK}.out": f"{inside}.attention.output.dense",
        f"{LAYER}.norms.1": f"{inside}.layernorm_after",
        f"{LAYER}.parts.1.inner": f"{inside}.intermediate.dense",
        f"{LAYER}.parts.1.outer": f"{inside}.output.dense",
        "encoder.stack.final": f"{stem}.layernorm",
        "heads.0.head": "classifier",
    }
    return keys, f"{inside}.attention.self", f"{stage}.downsample"


KEYS, SELF, DOWN = columns("swin")
SWIN = Architecture(
    theirs=TheirSwin,
    config=SwinConfig,
    relatives=(SwinV2Config,),
    classes={"SwinForImageClassification": "classify-images", "SwinModel": "encode-images"},
    keys={
        **KEYS,
        f"{LOOK}.score_mods.0.table": Key((f"{SELF}.relative_position_bias_table",)),
        f"{LAYER}.project.0": f"{DOWN}.norm",
        f"{LAYER}.project.1": f"{DOWN}.reduction",
    },
    stem="swin.",
    ignored={r".*\.relative_position_index": COMPUTED},
)

KEYS, SELF, DOWN = columns("swinv2")
SWIN_V2 = Architecture(
    theirs=TheirSwinV2,
    config=SwinV2Config,
    relatives=(SwinConfig,),
    classes={"Swinv2ForImageClassification": "classify-images", "Swinv2Model": "encode-images"},
    keys={
        **KEYS,
        f"{LOOK}.qkv.bias": Key(
            (f"{SELF}.query.bias", f"{SELF}.value.bias"), write=lambda tensor, sizes: tensor.chunk(2)
        ),
        f"{LOOK}.score_mods.0.inner": f"{SELF}.continuous_position_bias_mlp.0",
        f"{LOOK}.score_mods.0.outer": f"{SELF}.continuous_position_bias_mlp.2",
        f"{LOOK}.score.log_factor": f"{SELF}.logit_scale",
        f"{LAYER}.project.0": f"{DOWN}.reduction",
        f"{LAYER}.project.1": f"{DOWN}.norm",
    },
    stem="swinv2.",
    ignored={r".*\.(relative_position_index|relative_coords_table)": COMPUTED},
)
