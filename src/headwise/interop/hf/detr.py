"""DETR of `transformers`, with a ResNet of its own or one that is named as in timm."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, Self

from pydantic import Field, ValidationError, field_validator, model_validator
from torch import Tensor

from headwise.config.base import Problems, list_problems
from headwise.interop.hf.architecture import OURS, Architecture, Key, Keys, Plain, activation_of, either
from headwise.interop.hf.bart import ALIASES, block
from headwise.interop.hf.images import Sides, TheirImages, pair
from headwise.interop.hf.resnet import TheirResNet, backbone
from headwise.models.detr import DetrConfig

DEPTHS = {"resnet50": (3, 4, 6, 3), "resnet101": (3, 4, 23, 3)}  # by the names of timm
TIMM = {  # names of `transformers` -> of timm
    "embedder.embedder.convolution": "conv1",
    "embedder.embedder.normalization": "bn1",
    "shortcut.convolution": "downsample.0",
    "shortcut.normalization": "downsample.1",
    **{f"layer.{number}.convolution": f"conv{number + 1}" for number in range(3)},
    **{f"layer.{number}.normalization": f"bn{number + 1}" for number in range(3)},
}


class TheirBackbone(TheirResNet):
    # Of those that it gives the last one is read; none: the last stage.
    out_features: tuple[str, ...] | None = None
    out_indices: tuple[int, ...] | None = None

    @model_validator(mode="after")
    def _last(self) -> Self:
        count = len(self.depths)
        if self.out_features and self.out_features[-1] != f"stage{count}":
            raise ValueError(f"out_features must end with the last stage, stage{count}")
        if self.out_indices and self.out_indices[-1] not in (count, -1):
            raise ValueError(f"out_indices must end with the last stage, {count}")
        return self


class TimmBackbone(Keys):
    """One of timm's, by its name."""

    unread = (*TheirImages.unread, "stage_names", "use_pretrained_backbone", "freeze_batch_norm_2d", "in_chans")

    model_type: Literal["timm_backbone"] = "timm_backbone"
    backbone: Literal["resnet50", "resnet101"] = "resnet50"
    num_channels: int = Field(3, gt=0)
    features_only: Literal[True] = True
    output_stride: Literal[32] | None = None
    out_features: Literal[None] = None  # timm counts them
    out_indices: tuple[int, ...] | None = None

    @property
    def resnet(self) -> TheirBackbone:
        """The same without timm."""
        return TheirBackbone(num_channels=self.num_channels, depths=DEPTHS[self.backbone], out_indices=self.out_indices)


def timm(data: Mapping[str, Any]) -> TheirBackbone:
    try:
        return TimmBackbone.model_validate(data).resnet
    except ValidationError as error:
        raise Problems(list_problems(error)) from None


class TheirDetr(TheirImages):
    aliases = ALIASES
    # Losses, and what older files say of parts that it does not have.
    unread = (
        *TheirImages.unread,
        *(f"{name}_cost" for name in ("class", "bbox", "giou")),
        *(f"{name}_coefficient" for name in ("mask_loss", "dice_loss", "bbox_loss", "giou_loss", "eos")),
        *("max_position_embeddings", "scale_embedding", "use_pretrained_backbone"),
    )

    model_type: Literal["detr"] = "detr"
    is_encoder_decoder: Literal[True] = True  # type: ignore[assignment]
    image_size: Sides = (800, 1066)  # our own: theirs reads images of any size
    use_timm_backbone: bool = True
    backbone: Literal["resnet50", "resnet101"] | None = None  # timm's, where nothing else is said
    backbone_kwargs: dict[str, Any] | None = None
    backbone_config: TheirBackbone | None = None
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
    activation_function: Plain = "relu"
    dropout: float = 0.1
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    auxiliary_loss: Literal[False] = False  # with it, the final norm stands between their decoder's layers

    @field_validator("backbone_config", mode="before")
    @classmethod
    def _what_matters(cls, value: Any) -> Any:
        return timm(value) if isinstance(value, Mapping) and value.get("model_type") == "timm_backbone" else value

    @property
    def named(self) -> dict[str, Any]:
        """What is said of a backbone that has no table of its own."""
        return (self.backbone_kwargs or {}) | ({"backbone": self.backbone} if self.backbone else {})

    @model_validator(mode="after")
    def _alike(self) -> Self:
        timm(self.named)
        heads, hidden = self.encoder_attention_heads, self.encoder_ffn_dim
        if (self.decoder_attention_heads, self.decoder_ffn_dim) != (heads, hidden):
            raise ValueError("encoder and decoder of different heads or ffn_dim are not supported")
        return self

    def ours(self, task: str, names: Collection[str]) -> dict[str, Any]:
        backbone = (self.backbone_config or timm(self.named)).ours(task, names)
        shape = {key: backbone[key] for key in ("width", "depths", "bottleneck")}
        return {
            "image": pair(self.image_size),
            "channels": self.num_channels,
            "backbone": {"kind": "resnet", "norm": "frozen", **shape},
            "queries": self.num_queries,
            "width": self.d_model,
            "heads": self.encoder_attention_heads,
            "hidden": self.encoder_ffn_dim,
            "depth": self.encoder_layers,
            "decoder": {"depth": self.decoder_layers},
            "activation": OURS[self.activation_function],
            "dropout": self.dropout,
            "attention_dropout": self.attention_dropout,
            "hidden_dropout": self.activation_dropout,
        }

    @classmethod
    def of(cls, config: Any, vocab: int) -> Self:
        hidden = config.hidden or 4 * config.width
        return cls(
            image_size=config.image,
            num_channels=config.channels,
            use_timm_backbone=False,
            backbone_config=backbone_of(config),
            num_queries=config.queries,
            d_model=config.width,
            encoder_layers=config.depth,
            decoder_layers=config.decoder.depth,
            encoder_attention_heads=config.heads,
            decoder_attention_heads=config.heads,
            encoder_ffn_dim=hidden,
            decoder_ffn_dim=hidden,
            activation_function=activation_of(config),
            dropout=config.dropout,
            attention_dropout=config.attention_dropout,
            activation_dropout=config.hidden_dropout,
        )


def backbone_of(config: DetrConfig) -> TheirBackbone:
    """Of one that is no ResNet, any: that it is another shows when it is read back."""
    if config.backbone.kind != "resnet":
        return TheirBackbone()
    found = TheirBackbone.of(config.backbone.with_image_size(*config.image, config.channels), 0)
    return found.replace(out_features=(f"stage{len(found.depths)}",))


def either_backbone() -> dict[str, Key]:
    """Under the names of `transformers`, and of timm, which counts stages from 1."""
    found, names = {}, dict[str, Any](backbone("encoder.stem.backbone", "model.backbone.conv_encoder.model"))
    for ours, theirs in names.items():
        for stage in range(4):
            other = theirs.replace("encoder.stages.{stage}.layers", f"layer{stage + 1}")
            for name, timm in TIMM.items():
                other = other.replace(name, timm)
            here, there = (name.replace("{stage}", str(stage)) for name in (ours, theirs))
            found[here] = either(there, other)
    return found


def unfolded(parts: Sequence[Tensor]) -> Tensor:
    return parts[0].flatten(1) if parts[0].dim() > 1 else parts[0]  # (C, D, 1, 1) -> (C, D)


def folded(tensor: Tensor, sizes: Sequence[int]) -> Sequence[Tensor]:
    return (tensor[..., None, None] if tensor.dim() > 1 else tensor,)  # (C, D) -> (C, D, 1, 1)


DETR = Architecture(
    theirs=TheirDetr,
    config=DetrConfig,
    classes={"DetrForObjectDetection": "detect"},
    keys={
        **either_backbone(),
        "encoder.stem.project": Key(("model.input_projection",), unfolded, folded),
        **block("encoder", memory=False),
        **{ours.replace("decoder.stack", "decoder"): key for ours, key in block("decoder", memory=True).items()},
        **{f"decoder.layers.{{i}}.parts.{part}.qkv.places.table": "model.query_position_embeddings" for part in (0, 1)},
        "decoder.final": "model.decoder.layernorm",
        "classes": "class_labels_classifier",
        **{f"boxes.{2 * layer}": f"bbox_predictor.layers.{layer}" for layer in range(3)},
    },
    ignored={r".*\.num_batches_tracked": "counts steps of training"},
)
