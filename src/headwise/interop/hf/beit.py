"""BEiT of `transformers` (Bao et al. 2022): a ViT with LayerScale, a relative position bias, no bias of the keys, and
a classifier of the normalised mean of the patches."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, field_validator

from headwise.interop.hf.architecture import (
    ACTIVATIONS,
    COMPUTED,
    Architecture,
    HfActivation,
    NameMap,
    WeightConverter,
    fuse,
    name_activation,
)
from headwise.interop.hf.images import HfImageConfig, ImageSize, concatenate_vectors, flatten_kernel, to_pair
from headwise.models.vit import ViTConfig

LAYER, HF_LAYER = "encoder.stack.layers.{i}", "beit.encoder.layer.{i}"
ATTENTION, HF_ATTENTION = f"{LAYER}.parts.0", f"{HF_LAYER}.attention.attention"


class HfBeitConfig(HfImageConfig):
    # Of masked image modelling, of segmentation, of a backbone, and derived from num_hidden_layers.
    ignored_keys = (
        *HfImageConfig.ignored_keys,
        *("vocab_size", "use_mask_token", "pool_scales", "use_auxiliary_head", "auxiliary_loss_weight"),
        *("auxiliary_channels", "auxiliary_num_convs", "auxiliary_concat_input", "semantic_loss_ignore_index"),
        *("stage_names", "out_features", "out_indices", "segmentation_indices", "add_fpn", "reshape_hidden_states"),
    )
    image_processor: ClassVar[str] = "BeitImageProcessor"

    model_type: Literal["beit"] = "beit"
    hidden_size: int = Field(768, gt=0)
    num_hidden_layers: int = Field(12, gt=0)
    num_attention_heads: int = Field(12, gt=0)
    intermediate_size: int = Field(3072, gt=0)
    hidden_act: HfActivation = "gelu"
    hidden_dropout_prob: float = 0.0
    attention_probs_dropout_prob: float = 0.0
    layer_norm_eps: float = 1e-12
    image_size: ImageSize = 224
    patch_size: int = Field(16, gt=0)  # of a list, `transformers` cannot compute the grid
    use_absolute_position_embeddings: bool = False
    use_relative_position_bias: bool = False
    use_shared_relative_position_bias: bool = False
    layer_scale_init_value: float = Field(0.1, ge=0)
    drop_path_rate: float = 0.1
    use_mean_pooling: bool = True

    @field_validator("image_size")
    @classmethod
    def _check_square(cls, size: ImageSize) -> ImageSize:
        if len(set(to_pair(size))) > 1:
            raise ValueError("must be square: transformers interpolates the positions of any other as if it were")
        return size

    def to_settings(self, task: str, names: Collection[str]) -> dict[str, Any]:
        rows, columns = (side // self.patch_size for side in to_pair(self.image_size))
        grid_bias = {"kind": "grid_bias", "rows": max(rows, 1), "columns": max(columns, 1)}
        biases = [grid_bias] if self.use_relative_position_bias else []
        biases += [{**grid_bias, "shared": True}] if self.use_shared_relative_position_bias else []
        return {
            "image": to_pair(self.image_size),
            "channels": self.num_channels,
            "patch": self.patch_size,
            "width": self.hidden_size,
            "depth": self.num_hidden_layers,
            "heads": self.num_attention_heads,
            "hidden": self.intermediate_size,
            "activation": ACTIVATIONS[self.hidden_act],
            "mixer": {
                "kind": "attention",
                "key_bias": False,
                "score_mods": biases,
            },
            "positions": "grid" if self.use_absolute_position_embeddings else "none",
            "norm": {"kind": "layer", "eps": self.layer_norm_eps},
            "layer_scale": self.layer_scale_init_value,
            "dropout": self.hidden_dropout_prob,
            "attention_dropout": self.attention_probs_dropout_prob,
            "drop_path": self.drop_path_rate,
            "class_tokens": 1,
            "pool": "first",
            "head_input": "mean" if self.use_mean_pooling else "token",
            "norm_pooled": self.use_mean_pooling,
        }

    @classmethod
    def from_model_config(cls, config: Any, vocab: int) -> Self:
        shared = [getattr(mod, "shared", False) for mod in getattr(config.mixer, "score_mods", ())]
        data = {
            "image_size": max(config.image),  # one that is not square reads back differently
            "num_channels": config.channels,
            "patch_size": config.patch,
            "hidden_size": config.width,
            "num_hidden_layers": config.depth,
            "num_attention_heads": config.heads,
            "intermediate_size": config.hidden or 4 * config.width,
            "hidden_act": name_activation(config),
            "hidden_dropout_prob": config.dropout,
            "attention_probs_dropout_prob": config.attention_dropout,
            "layer_norm_eps": config.norm.eps,
            "use_absolute_position_embeddings": config.positions.kind == "grid",
            "use_relative_position_bias": False in shared,
            "use_shared_relative_position_bias": True in shared,
            "layer_scale_init_value": config.layer_scale,
            "drop_path_rate": config.drop_path,
            "use_mean_pooling": config.head_input == "mean",
        }
        return cls.model_validate(data)

    def build_name_map(self) -> NameMap:
        """The tables of the layers come before the one that they share."""
        layer_table, shared_table = (
            WeightConverter((f"{module}.relative_position_bias.relative_position_bias_table",))
            for module in (HF_ATTENTION, "beit.encoder")
        )
        tables = [layer_table] if self.use_relative_position_bias else []
        tables += [shared_table] if self.use_shared_relative_position_bias else []
        return {f"{ATTENTION}.score_mods.{number}.table": table for number, table in enumerate(tables)}


BEIT = Architecture(
    hf_config=HfBeitConfig,
    config=ViTConfig,
    classes={"BeitForImageClassification": "classify-images", "BeitModel": "encode-images"},
    name_map={
        "encoder.stem.patches.project": flatten_kernel("beit.embeddings.patch_embeddings.projection"),
        "encoder.stem.class_tokens": concatenate_vectors("beit.embeddings.cls_token"),
        "encoder.stem.positions.table": concatenate_vectors("beit.embeddings.position_embeddings"),
        f"{LAYER}.norms.0": f"{HF_LAYER}.layernorm_before",
        f"{ATTENTION}.qkv.project": fuse(*(f"{HF_ATTENTION}.{part}" for part in ("query", "key", "value"))),
        f"{ATTENTION}.qkv.bias": WeightConverter(
            (f"{HF_ATTENTION}.query.bias", f"{HF_ATTENTION}.value.bias"), write=lambda tensor, sizes: tensor.chunk(2)
        ),
        f"{ATTENTION}.out": f"{HF_LAYER}.attention.output.dense",
        f"{LAYER}.adds.0.gain": f"{HF_LAYER}.lambda_1",
        f"{LAYER}.norms.1": f"{HF_LAYER}.layernorm_after",
        f"{LAYER}.parts.1.inner": f"{HF_LAYER}.intermediate.dense",
        f"{LAYER}.parts.1.outer": f"{HF_LAYER}.output.dense",
        f"{LAYER}.adds.1.gain": f"{HF_LAYER}.lambda_2",
        "encoder.stack.final": "beit.layernorm",
    },
    head_maps={
        "classify-images": {"heads.0.pool.1": "beit.pooler.layernorm", "heads.0.head": "classifier"},
        "encode-images": {"pool.1": "beit.pooler.layernorm"},
    },
    base_prefix="beit.",
    ignored={
        r".*\.relative_position_index": COMPUTED,
        r"beit\.embeddings\.mask_token": "only masked image modelling uses it",
    },
)
