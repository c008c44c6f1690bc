"""DETR of `transformers`, with a ResNet under its own tensor names or under those of timm."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, Self

from pydantic import Field, ValidationError, field_validator, model_validator
from torch import Tensor

from headwise.config.base import Problems, list_problems
from headwise.interop.hf.architecture import (
    ACTIVATIONS,
    Architecture,
    HfActivation,
    HfConfigBase,
    WeightConverter,
    any_of,
    name_activation,
)
from headwise.interop.hf.bart import ALIASES, map_layers
from headwise.interop.hf.images import HfImageConfig, ImageSize, to_pair
from headwise.interop.hf.resnet import HfResNetConfig, map_resnet
from headwise.models.detr import DetrConfig

DEPTHS = {"resnet50": (3, 4, 6, 3), "resnet101": (3, 4, 23, 3)}  # by timm's name
TIMM_NAMES = {  # part of a tensor name in `transformers` -> in timm
    "embedder.embedder.convolution": "conv1",
    "embedder.embedder.normalization": "bn1",
    "shortcut.convolution": "downsample.0",
    "shortcut.normalization": "downsample.1",
    **{f"layer.{number}.convolution": f"conv{number + 1}" for number in range(3)},
    **{f"layer.{number}.normalization": f"bn{number + 1}" for number in range(3)},
}


class HfBackboneConfig(HfResNetConfig):
    # The last output is used; without outputs, the last stage.
    out_features: tuple[str, ...] | None = None
    out_indices: tuple[int, ...] | None = None

    @model_validator(mode="after")
    def _check_last_stage(self) -> Self:
        count = len(self.depths)
        if self.out_features and self.out_features[-1] != f"stage{count}":
            raise ValueError(f"out_features must end with the last stage, stage{count}")
        if self.out_indices and self.out_indices[-1] not in (count, -1):
            raise ValueError(f"out_indices must end with the last stage, {count}")
        return self


class TimmBackboneConfig(HfConfigBase):
    """A backbone of timm, by its name."""

    ignored_keys = (
        *HfImageConfig.ignored_keys,
        "stage_names",
        "use_pretrained_backbone",
        "freeze_batch_norm_2d",
        "in_chans",
    )

    model_type: Literal["timm_backbone"] = "timm_backbone"
    backbone: Literal["resnet50", "resnet101"] = "resnet50"
    num_channels: int = Field(3, gt=0)
    features_only: Literal[True] = True
    output_stride: Literal[32] | None = None
    out_features: Literal[None] = None  # timm selects outputs by index
    out_indices: tuple[int, ...] | None = None

    @property
    def resnet(self) -> HfBackboneConfig:
        """The equivalent ResNet of `transformers`."""
        return HfBackboneConfig(
            num_channels=self.num_channels, depths=DEPTHS[self.backbone], out_indices=self.out_indices
        )


def read_timm_backbone(data: Mapping[str, Any]) -> HfBackboneConfig:
    try:
        return TimmBackboneConfig.model_validate(data).resnet
    except ValidationError as error:
        raise Problems(list_problems(error)) from None


class HfDetrConfig(HfImageConfig):
    aliases = ALIASES
    # Losses, and keys of older files that DETR does not use.
    ignored_keys = (
        *HfImageConfig.ignored_keys,
        *(f"{name}_cost" for name in ("class", "bbox", "giou")),
        *(f"{name}_coefficient" for name in ("mask_loss", "dice_loss", "bbox_loss", "giou_loss", "eos")),
        *("max_position_embeddings", "scale_embedding", "use_pretrained_backbone"),
    )

    image_processor = "DetrImageProcessor"
    model_type: Literal["detr"] = "detr"
    is_encoder_decoder: Literal[True] = True  # type: ignore[assignment]
    image_size: ImageSize = (800, 1066)  # a key of Headwise: `transformers` reads images of any size
    use_timm_backbone: bool = True
    backbone: Literal["resnet50", "resnet101"] | None = None  # the default is timm's resnet50
    backbone_kwargs: dict[str, Any] | None = None
    backbone_config: HfBackboneConfig | None = None
    dilation: Literal[False] = False
    position_embedding_type: Literal["sine"] = "sine"
    num_queries: int = Field(100, gt=0)
    d_model: int = Field(256, gt=0)
    encoder_layers: int = Field(6, gt=0)
    decoder_layers: int = Field(6, gt=0)
    encoder_attention_heads: int = Field(8, gt=0)
    decoder_attention_heads: int = Field(8, gt=0)
    encoder_ffn_dim: int = Field(2048, gt=0)
    decoder_ffn_dim: int = Field(2048, gt=0)
    activation_function: HfActivation = "relu"
    dropout: float = 0.1
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    auxiliary_loss: Literal[False] = False  # with it, the final norm also follows each decoder layer

    @field_validator("backbone_config", mode="before")
    @classmethod
    def _resolve_timm(cls, value: Any) -> Any:
        return (
            read_timm_backbone(value)
            if isinstance(value, Mapping) and value.get("model_type") == "timm_backbone"
            else value
        )

    @property
    def timm_keys(self) -> dict[str, Any]:
        """The keys of a timm backbone without a `backbone_config`."""
        return (self.backbone_kwargs or {}) | ({"backbone": self.backbone} if self.backbone else {})

    @model_validator(mode="after")
    def _check_equal(self) -> Self:
        read_timm_backbone(self.timm_keys)
        heads, hidden = self.encoder_attention_heads, self.encoder_ffn_dim
        if (self.decoder_attention_heads, self.decoder_ffn_dim) != (heads, hidden):
            raise ValueError("encoder and decoder of different heads or ffn_dim are not supported")
        return self

    def to_settings(self, task: str, names: Collection[str]) -> dict[str, Any]:
        backbone = (self.backbone_config or read_timm_backbone(self.timm_keys)).to_settings(task, names)
        shape = {key: backbone[key] for key in ("width", "depths", "bottleneck")}
        return {
            "image": to_pair(self.image_size),
            "channels": self.num_channels,
            "backbone": {"kind": "resnet", "norm": "frozen", **shape},
            "queries": self.num_queries,
            "width": self.d_model,
            "heads": self.encoder_attention_heads,
            "hidden": self.encoder_ffn_dim,
            "depth": self.encoder_layers,
            "decoder": {"depth": self.decoder_layers},
            "activation": ACTIVATIONS[self.activation_function],
            "dropout": self.dropout,
            "attention_dropout": self.attention_dropout,
            "hidden_dropout": self.activation_dropout,
        }

    @classmethod
    def from_model_config(cls, config: Any, vocab: int) -> Self:
        hidden = config.hidden or 4 * config.width
        return cls(
            image_size=config.image,
            num_channels=config.channels,
            use_timm_backbone=False,
            backbone_config=build_backbone_config(config),
            num_queries=config.queries,
            d_model=config.width,
            encoder_layers=config.depth,
            decoder_layers=config.decoder.depth,
            encoder_attention_heads=config.heads,
            decoder_attention_heads=config.heads,
            encoder_ffn_dim=hidden,
            decoder_ffn_dim=hidden,
            activation_function=name_activation(config),
            dropout=config.dropout,
            attention_dropout=config.attention_dropout,
            activation_dropout=config.hidden_dropout,
        )


def build_backbone_config(config: DetrConfig) -> HfBackboneConfig:
    """A backbone other than ResNet becomes the default one; `choose_architecture` then refuses the model."""
    if config.backbone.kind != "resnet":
        return HfBackboneConfig()
    resnet = HfBackboneConfig.from_model_config(config.backbone.with_image_size(*config.image, config.channels), 0)
    return resnet.replace(out_features=(f"stage{len(resnet.depths)}",))


def map_backbone() -> dict[str, WeightConverter]:
    """Tensor names of the backbone in `transformers`, and in timm, which counts stages from 1."""
    name_map = {}
    resnet: dict[str, Any] = map_resnet("encoder.stem.backbone", "model.backbone.conv_encoder.model")
    for pattern, hf_pattern in resnet.items():
        for stage in range(4):
            timm_name = hf_pattern.replace("encoder.stages.{stage}.layers", f"layer{stage + 1}")
            for part, timm_part in TIMM_NAMES.items():
                timm_name = timm_name.replace(part, timm_part)
            name, hf_name = (template.replace("{stage}", str(stage)) for template in (pattern, hf_pattern))
            name_map[name] = any_of(hf_name, timm_name)
    return name_map


def flatten_kernel_1x1(parts: Sequence[Tensor]) -> Tensor:
    return parts[0].flatten(1) if parts[0].dim() > 1 else parts[0]  # (C, D, 1, 1) -> (C, D)


def unflatten_kernel_1x1(tensor: Tensor, sizes: Sequence[int]) -> Sequence[Tensor]:
    return (tensor[..., None, None] if tensor.dim() > 1 else tensor,)  # (C, D) -> (C, D, 1, 1)


DETR = Architecture(
    hf_config=HfDetrConfig,
    config=DetrConfig,
    classes={"DetrForObjectDetection": "detect"},
    name_map={
        **map_backbone(),
        "encoder.stem.project": WeightConverter(("model.input_projection",), flatten_kernel_1x1, unflatten_kernel_1x1),
        **map_layers("encoder", memory=False),
        **{
            name.replace("decoder.stack", "decoder"): value
            for name, value in map_layers("decoder", memory=True).items()
        },
        **{f"decoder.layers.{{i}}.parts.{part}.qkv.places.table": "model.query_position_embeddings" for part in (0, 1)},
        "decoder.final": "model.decoder.layernorm",
        "classes": "class_labels_classifier",
        **{f"boxes.{2 * layer}": f"bbox_predictor.layers.{layer}" for layer in range(3)},
    },
    ignored={r".*\.num_batches_tracked": "counts training steps"},
)
