"""DINOv2 of `transformers` (Oquab et al. 2024): a ViT with LayerScale whose classifier reads the class token and the
mean of the patches. Its processor makes smaller images than `image_size` in most released folders; position embeddings
are then interpolated, at import here, at every call there."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, field_validator

from headwise.interop.hf.architecture import (
    ACTIVATIONS,
    Architecture,
    HfActivation,
    NameMap,
    fuse,
    keep_fused,
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
from headwise.models.vit import ViTConfig

LAYER = "encoder.stack.layers.{i}"
MAX_RATIO = 64


class HfDinov2Config(HfImageConfig):
    """`qkv_bias` cannot be false while other biases exist; `layerscale_value` is the initial value of weights."""

    # Of a backbone, of masked image modelling, and derived from num_hidden_layers.
    ignored_keys = (
        *HfImageConfig.ignored_keys,
        *("stage_names", "out_features", "out_indices", "apply_layernorm", "reshape_hidden_states"),
    )
    image_processor: ClassVar[str] = "BitImageProcessor"
    interpolates: ClassVar[bool] = True
    prefix: ClassVar[str] = "dinov2"

    model_type: Literal["dinov2"] = "dinov2"
    hidden_size: int = Field(768, gt=0)
    num_hidden_layers: int = Field(12, gt=0)
    num_attention_heads: int = Field(12, gt=0)
    mlp_ratio: int = Field(4, gt=0)
    hidden_act: HfActivation = "gelu"
    hidden_dropout_prob: float = 0.0
    attention_probs_dropout_prob: float = 0.0
    layer_norm_eps: float = 1e-6
    image_size: ImageSize = 224
    patch_size: PatchSize = 14
    qkv_bias: Literal[True] = True
    layerscale_value: float = Field(1.0, ge=0)
    drop_path_rate: float = 0.0
    use_swiglu_ffn: bool = False
    use_mask_token: bool = True

    @field_validator("image_size")
    @classmethod
    def _check_square(cls, size: ImageSize) -> ImageSize:
        if len(set(to_pair(size))) > 1:
            raise ValueError("must be square: transformers interpolates the positions of any other as if it were")
        return size

    @property
    def hidden(self) -> int:
        """The hidden width of the feed-forward networks: of SwiGLU two thirds, rounded up to a multiple of 8."""
        hidden = self.hidden_size * self.mlp_ratio
        return (int(hidden * 2 / 3) + 7) // 8 * 8 if self.use_swiglu_ffn else hidden

    def to_settings(self, task: str, names: Collection[str]) -> dict[str, Any]:
        return {
            "image": to_pair(self.image_size),
            "channels": self.num_channels,
            "patch": self.patch_size,
            "width": self.hidden_size,
            "depth": self.num_hidden_layers,
            "heads": self.num_attention_heads,
            "hidden": self.hidden,
            "activation": "swiglu" if self.use_swiglu_ffn else ACTIVATIONS[self.hidden_act],
            "norm": {"kind": "layer", "eps": self.layer_norm_eps},
            "layer_scale": self.layerscale_value or 1.0,  # 0: no LayerScale in Headwise
            "dropout": self.hidden_dropout_prob,
            "attention_dropout": self.attention_probs_dropout_prob,
            "drop_path": self.drop_path_rate,
            "class_tokens": 1,
            "pool": "first",
            "head_input": "token+mean",
        }

    @classmethod
    def from_model_config(cls, config: Any, vocab: int) -> Self:
        data = {
            "image_size": config.image if config.image[0] != config.image[1] else config.image[0],
            "num_channels": config.channels,
            "patch_size": config.patch,
            "hidden_size": config.width,
            "num_hidden_layers": config.depth,
            "num_attention_heads": config.heads,
            "hidden_act": name_activation(config),
            "hidden_dropout_prob": config.dropout,
            "attention_probs_dropout_prob": config.attention_dropout,
            "layer_norm_eps": config.norm.eps,
            "layerscale_value": config.layer_scale,
            "drop_path_rate": config.drop_path,
            "use_swiglu_ffn": config.activation == "swiglu",
            "use_mask_token": False,
        }
        if config.image[0] != config.image[1]:
            data["image_size"] = max(config.image)  # cannot be expressed, so it reads back differently
        candidates = [cls.model_validate({**data, "mlp_ratio": ratio}) for ratio in range(1, MAX_RATIO)]
        hidden = config.hidden or 4 * config.width
        return next((candidate for candidate in candidates if candidate.hidden == hidden), candidates[0])

    def build_name_map(self) -> NameMap:
        inner, outer = ("weights_in", "weights_out") if self.use_swiglu_ffn else ("fc1", "fc2")
        mlp = f"{self.prefix}.encoder.layer.{{i}}.mlp"
        return {
            f"{LAYER}.parts.1.inner": keep_fused(f"{mlp}.{inner}"),
            f"{LAYER}.parts.1.outer": f"{mlp}.{outer}",
        }


class HfDinov2WithRegistersConfig(HfDinov2Config):
    """DINOv2 with register tokens; the interpolation of its positions is antialiased."""

    prefix: ClassVar[str] = "dinov2_with_registers"

    model_type: Literal["dinov2_with_registers"] = "dinov2_with_registers"  # type: ignore[assignment]
    patch_size: PatchSize = 16
    num_register_tokens: int = Field(4, gt=0, le=1000)

    def to_settings(self, task: str, names: Collection[str]) -> dict[str, Any]:
        positions = {"kind": "grid", "antialias": True}
        return super().to_settings(task, names) | {"registers": self.num_register_tokens, "positions": positions}

    @classmethod
    def from_model_config(cls, config: Any, vocab: int) -> Self:
        hf_config: Self = super().from_model_config(config, vocab)
        registers = config.registers or 1  # none reads back differently
        with_registers: Self = hf_config.replace(num_register_tokens=registers)
        return with_registers


def map_base_model(prefix: str) -> dict[str, Any]:
    """Tensor names of both models; those of the feed-forward networks depend on the config."""
    hf_layer = f"{prefix}.encoder.layer.{{i}}"
    return {
        "encoder.stem.patches.project": flatten_kernel(f"{prefix}.embeddings.patch_embeddings.projection"),
        "encoder.stem.class_tokens": concatenate_vectors(f"{prefix}.embeddings.cls_token"),
        "encoder.stem.registers": concatenate_vectors(f"{prefix}.embeddings.register_tokens"),
        "encoder.stem.positions.table": concatenate_vectors(f"{prefix}.embeddings.position_embeddings"),
        f"{LAYER}.norms.0": f"{hf_layer}.norm1",
        f"{LAYER}.parts.0.qkv.project": fuse(
            *(f"{hf_layer}.attention.attention.{part}" for part in ("query", "key", "value"))
        ),
        f"{LAYER}.parts.0.out": f"{hf_layer}.attention.output.dense",
        f"{LAYER}.adds.0.gain": f"{hf_layer}.layer_scale1.lambda1",
        f"{LAYER}.norms.1": f"{hf_layer}.norm2",
        f"{LAYER}.adds.1.gain": f"{hf_layer}.layer_scale2.lambda1",
        "encoder.stack.final": f"{prefix}.layernorm",
    }


MASK_TOKEN = "only masked image modelling uses it"
DINOV2 = Architecture(
    hf_config=HfDinov2Config,
    config=ViTConfig,
    classes={"Dinov2ForImageClassification": "classify-images", "Dinov2Model": "encode-images"},
    name_map=map_base_model("dinov2"),
    head_maps={"classify-images": {"heads.0.head": "classifier"}},
    base_prefix="dinov2.",
    ignored={r"dinov2\.embeddings\.mask_token": MASK_TOKEN},
)
DINOV2_WITH_REGISTERS = Architecture(
    hf_config=HfDinov2WithRegistersConfig,
    config=ViTConfig,
    classes={
        "Dinov2WithRegistersForImageClassification": "classify-images",
        "Dinov2WithRegistersModel": "encode-images",
    },
    name_map=map_base_model("dinov2_with_registers"),
    head_maps={"classify-images": {"heads.0.head": "classifier"}},
    base_prefix="dinov2_with_registers.",
    ignored={r"dinov2_with_registers\.embeddings\.mask_token": MASK_TOKEN},
)
