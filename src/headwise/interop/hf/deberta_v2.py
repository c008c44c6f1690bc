"""DeBERTa v2 and v3 of `transformers`: the names of version 1, other projections, buckets and a convolution.

Version 3 is version 2 with `share_att_key`, as its folders say. Its masked language model head has the names of
`legacy` false, and beside it the head of replaced token detection, `mask_predictions`, which `transformers` does not
read either.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from headwise.blocks.positions.relative import DisentangledAttentionConfig
from headwise.config.base import Problems
from headwise.interop.hf.architecture import ACTIVATIONS, HF_ACTIVATIONS, HfActivation, fuse
from headwise.interop.hf.bert import PROJECTIONS
from headwise.interop.hf.deberta import DEBERTA, HF_SELF, LAYER, SCORE_MOD, HfDebertaConfig
from headwise.interop.hf.deberta import POSITIONS as ABSOLUTE_POSITIONS

TERMS = ("c2p", "p2c")


class HfDebertaV2Config(HfDebertaConfig):
    ignored_keys = (*HfDebertaConfig.ignored_keys, "cls_dropout")

    model_type: Literal["deberta-v2"] = "deberta-v2"  # type: ignore[assignment]
    vocab_size: int = Field(128100, gt=0)
    hidden_size: int = Field(1536, gt=0)
    num_hidden_layers: int = Field(24, gt=0)
    num_attention_heads: int = Field(24, gt=0)
    intermediate_size: int = Field(6144, gt=0)
    pos_att_type: tuple[str, ...] = ()  # c2p and p2c
    mask_decoder: int = 0  # only in folders that Headwise wrote
    # Keys that the class of `transformers` does not list, though its model reads them.
    position_buckets: int = -1
    share_att_key: bool = False
    norm_rel_ebd: str = "none"
    conv_kernel_size: int = Field(0, ge=0)
    conv_groups: int = Field(1, gt=0)
    conv_act: HfActivation = "tanh"
    attention_head_size: int | None = None
    embedding_size: int | None = None

    @field_validator("pos_att_type", mode="before")
    @classmethod
    def _check_both(cls, value: Any) -> tuple[str, ...]:
        kinds = value.lower().split("|") if isinstance(value, str) else value or ()
        names = [name for kind in kinds if (name := str(kind).strip()) not in ("", "none")]
        if unknown := sorted(set(names) - set(TERMS)):
            raise ValueError(f"{unknown[0]!r} is not supported; the terms are c2p and p2c")
        return tuple(term for term in TERMS if term in names)

    @field_validator("norm_rel_ebd")
    @classmethod
    def _check_norm(cls, value: str) -> str:
        kinds = {kind.strip() for kind in value.lower().split("|")}
        if kinds - {"none", "layer_norm"}:
            raise ValueError("only none and layer_norm are supported")
        return "layer_norm" if "layer_norm" in kinds else "none"

    @field_validator("conv_kernel_size")
    @classmethod
    def _check_kernel(cls, value: int) -> int:
        if value and value % 2 == 0:
            raise ValueError("only odd sizes are supported, as others change the length")
        return value

    @model_validator(mode="after")
    def _check_sizes(self) -> Self:
        width = {
            "attention_head_size": self.hidden_size // self.num_attention_heads,
            "embedding_size": self.hidden_size,
        }
        for key, expected in width.items():
            if getattr(self, key) not in (None, expected):
                raise Problems([((key,), f"only {expected}, which follows from hidden_size, is supported")])
        if self.position_buckets > 0 and (
            self.position_buckets < 2 or self.max_distance - 1 <= self.position_buckets // 2
        ):
            message = "is not supported: must be at least 2, and half of it below max_relative_positions - 1"
            raise Problems([(("position_buckets",), message)])
        return self

    @property
    def max_distance(self) -> int:
        return self.max_relative_positions if self.max_relative_positions > 0 else self.max_position_embeddings

    def to_settings(self, task: str, names: Collection[str]) -> dict[str, Any]:
        return super().to_settings(task, names) | {
            "mixer": {"kind": "attention"},
            "positions": {
                "kind": "deberta",
                "max_distance": self.max_distance,
                "buckets": max(self.position_buckets, 0),
                "terms": self.pos_att_type,
                "shared": self.share_att_key,
                "key_bias": True,
                "norm_eps": self.layer_norm_eps if self.norm_rel_ebd == "layer_norm" else 0.0,
            },
            "convolution": {
                "kernel": self.conv_kernel_size,
                "groups": self.conv_groups,
                "activation": ACTIVATIONS[self.conv_act],
            },
            "mask_decoder": self.mask_decoder if task != "masked" else 0,
        }

    @classmethod
    def build_keys(cls, config: Any) -> dict[str, Any]:
        keys = super().build_keys(config) | {
            "attention_head_size": config.width // config.heads,
            "embedding_size": config.width,
            "conv_kernel_size": config.convolution.kernel,
            "conv_groups": config.convolution.groups,
            "conv_act": HF_ACTIVATIONS.get(config.convolution.activation, ("tanh",))[0],
        }
        positions = config.positions
        if not isinstance(positions, DisentangledAttentionConfig):
            return keys
        return keys | {
            "position_buckets": positions.buckets or -1,
            "pos_att_type": positions.terms,
            "share_att_key": positions.shared,
            "norm_rel_ebd": "layer_norm" if positions.norm_eps else "none",
        }


FUSED = fuse(*(f"{HF_SELF}.{part}_proj" for part in PROJECTIONS))
VERSION_1 = (f"{LAYER}.parts.0.qkv.bias", "encoder.stack.positions.table")  # what version 2 does not have
DEBERTA_V2 = replace(
    DEBERTA,
    hf_config=HfDebertaV2Config,
    classes={name.replace("Deberta", "DebertaV2"): task for name, task in DEBERTA.classes.items()},
    name_map={
        **{name: value for name, value in DEBERTA.name_map.items() if name not in VERSION_1},
        f"{LAYER}.parts.0.qkv.project": FUSED,
        f"{SCORE_MOD}.keys": f"{HF_SELF}.pos_key_proj",
        f"{SCORE_MOD}.queries": f"{HF_SELF}.pos_query_proj",
        f"{SCORE_MOD}.norm": "deberta.encoder.LayerNorm",
        "encoder.stack.convolution.conv": "deberta.encoder.conv.conv",
        "encoder.stack.convolution.norm": "deberta.encoder.conv.LayerNorm",
    },
    ignored={
        **{name: why for name, why in DEBERTA.ignored.items() if "position_embeddings" not in name},
        ABSOLUTE_POSITIONS.replace(".", r"\."): "position_biased_input is false, so transformers ignores it, too",
        r"(deberta\.)?mask_predictions\..*": "it is the head of replaced token detection, which finds replaced tokens",
    },
)
