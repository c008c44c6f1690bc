"""ModernBERT of `transformers` (Warner et al. 2024): a BERT with rotary positions, pre-norm, GeGLU and few biases.

Layers with full attention and layers with a sliding window have rotary positions of their own. The first attention has
no norm, as the embeddings end with one. The head has a dense layer, an activation and a norm before its output layer,
for labels as for masked tokens.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from headwise.blocks.attention.multihead import AttentionConfig
from headwise.blocks.attention.score_mods import WindowConfig
from headwise.blocks.part import PartConfig
from headwise.blocks.positions.rotary import RotaryConfig
from headwise.config.base import Problems
from headwise.errors import UserError
from headwise.interop.hf.architecture import (
    ACTIVATIONS,
    GATES,
    HF_ACTIVATIONS,
    Architecture,
    HfActivation,
    HfGateActivation,
    HfTextConfig,
    NameMap,
    TokenId,
    WeightConverter,
    name_activation,
)
from headwise.interop.hf.bert import LABELS
from headwise.interop.hf.rope import read_rope, write_rope
from headwise.models.bert import BertConfig

LayerType = Literal["full_attention", "sliding_attention"]
FULL, SLIDING = "full_attention", "sliding_attention"
EVERY = 3  # layers from one with full attention to the next


class HfModernBertConfig(HfTextConfig):
    ignored_keys = (
        "deterministic_flash_attn",
        "initializer_cutoff_factor",
        "layer_norm_eps",  # beside norm_eps in the published folders
        "position_embedding_type",  # likewise
        "reference_compile",
        "repad_logits_with_grad",
        "sparse_pred_ignore_index",
        "sparse_prediction",  # concerns the loss
    )

    model_type: Literal["modernbert"] = "modernbert"
    vocab_size: int = Field(50368, gt=0)
    hidden_size: int = Field(768, gt=0)
    intermediate_size: int = Field(1152, gt=0)
    num_hidden_layers: int = Field(22, gt=0)
    num_attention_heads: int = Field(12, gt=0)
    hidden_activation: HfGateActivation = "gelu"
    max_position_embeddings: int = Field(8192, gt=0)
    norm_eps: float = 1e-5
    norm_bias: bool = False
    pad_token_id: TokenId = 50283
    bos_token_id: TokenId = 50281
    eos_token_id: TokenId = 50282
    cls_token_id: TokenId = 50281
    sep_token_id: TokenId = 50282
    attention_bias: bool = False
    attention_dropout: float = 0.0
    embedding_dropout: float = 0.0
    mlp_bias: bool = False
    mlp_dropout: float = 0.0
    layer_types: tuple[LayerType, ...] | None = None
    global_attn_every_n_layers: int | None = Field(None, gt=0)  # `transformers` before version 5
    local_attention: int = Field(128, ge=0)
    rope_parameters: dict[str, Any] | None = None
    rope_scaling: dict[str, Any] | None = None
    global_rope_theta: float = Field(160_000.0, gt=0)  # `transformers` before version 5
    local_rope_theta: float = Field(10_000.0, gt=0)
    decoder_bias: bool = True
    classifier_pooling: Literal["cls", "mean"] = "cls"
    classifier_bias: bool = False
    classifier_activation: HfActivation = "gelu"
    tie_word_embeddings: bool = True

    @field_validator("rope_parameters")
    @classmethod
    def _check_rope_parameters(cls, value: Any) -> Any:
        if unknown := sorted(set(value or ()) - {FULL, SLIDING}):
            raise ValueError(f"must have the tables {FULL} and {SLIDING}, and no {unknown[0]}")
        return value

    @model_validator(mode="after")
    def _check_layers(self) -> Self:
        if self.layer_types is not None and len(self.layer_types) != self.num_hidden_layers:
            message = f"has {len(self.layer_types)} of {self.num_hidden_layers} layers"
            raise Problems([(("layer_types",), message)])
        assert self.read_positions(FULL) and self.read_positions(SLIDING)
        return self

    @property
    def context(self) -> int:
        return self.max_position_embeddings

    def list_layer_types(self) -> Sequence[str]:
        """The type of each layer's attention."""
        every = self.global_attn_every_n_layers or EVERY
        return self.layer_types or [SLIDING if i % every else FULL for i in range(self.num_hidden_layers)]

    def read_positions(self, layer_type: str) -> dict[str, Any]:
        """The settings of the rotary positions of one type of layers."""
        table = {**((self.rope_parameters or {}).get(layer_type) or {}), **(self.rope_scaling or {})}
        if table.get("partial_rotary_factor") not in (None, 1.0):
            path = ("rope_parameters", layer_type, "partial_rotary_factor")
            raise Problems([(path, "is not supported, as transformers rotates all channels of this model")])
        return read_rope(
            table,
            "rope_scaling" if self.rope_scaling else f"rope_parameters.{layer_type}",
            theta=self.global_rope_theta if layer_type == FULL else self.local_rope_theta,
            fraction=None,
            length=self.max_position_embeddings,
            original=None,
        )

    def tied_weights(self, class_name: str) -> dict[str, str]:
        if not self.tie_word_embeddings or not class_name.endswith("ForMaskedLM"):
            return {}
        return {"decoder.weight": "model.embeddings.tok_embeddings.weight"}

    def to_settings(self, task: str, names: Collection[str]) -> dict[str, Any]:
        if not self.decoder_bias and "decoder.bias" in names:
            raise UserError(
                "config.json: decoder_bias: is false, so nothing reads decoder.bias; take both from one model"
            )
        half = self.local_attention // 2
        window = {"kind": "window", "left": half, "right": half}
        mods = {FULL: [self.read_positions(FULL)], SLIDING: [self.read_positions(SLIDING), window]}
        return {
            "width": self.hidden_size,
            "depth": self.num_hidden_layers,
            "heads": self.num_attention_heads,
            "hidden": self.intermediate_size,
            "activation": GATES[ACTIVATIONS[self.hidden_activation]],
            "positions": {"kind": "none"},
            "layers": [[{"kind": "attention", "score_mods": mods[kind]}, "mlp"] for kind in self.list_layer_types()],
            "wiring": {"kind": "pre", "first_norm": False},
            "norm": {"kind": "layer", "eps": self.norm_eps, "bias": self.norm_bias},
            "dropout": self.embedding_dropout,
            "attention_dropout": self.attention_dropout,
            "hidden_dropout": self.mlp_dropout,
            "attention_bias": self.attention_bias,
            "mlp_bias": self.mlp_bias,
            "token_types": 0,
            "pool": "first" if self.classifier_pooling == "cls" and task != "encode" else "mean",
            "head_transform": {
                "labels": True,
                "bias": self.classifier_bias,
                "activation": ACTIVATIONS[self.classifier_activation],
            },
        }

    @classmethod
    def from_model_config(cls, config: Any, vocab: int) -> Self:
        pattern = config.layers or config.pattern()
        mixers = [pattern[i % len(pattern)][0] for i in range(config.depth)]
        windows = [find_mod(mixer, WindowConfig) for mixer in mixers]
        values = {
            "vocab_size": vocab,
            "hidden_size": config.width,
            "num_hidden_layers": config.depth,
            "num_attention_heads": config.heads,
            "intermediate_size": config.hidden or 4 * config.width,
            "hidden_activation": name_activation(config),
            "norm_eps": config.norm.eps,
            "norm_bias": getattr(config.norm, "bias", False),
            "attention_bias": config.attention_bias,
            "attention_dropout": config.attention_dropout,
            "embedding_dropout": config.dropout,
            "mlp_bias": config.mlp_bias,
            "mlp_dropout": config.hidden_dropout,
            "layer_types": [SLIDING if window else FULL for window in windows],
            "local_attention": next((2 * window.left for window in windows if window), 128),
            "classifier_pooling": "mean" if config.pool == "mean" else "cls",
            "classifier_bias": config.head_transform.bias,
            "classifier_activation": HF_ACTIVATIONS.get(config.head_transform.activation, ("gelu",))[0],
            "tie_word_embeddings": config.tie not in ("none", "inputs"),
        }
        return cls.model_validate(values | write_positions(mixers, windows))


def find_mod(mixer: PartConfig, kind: type[Any]) -> Any:
    """The score mod of a kind in an attention; None where it has none."""
    mods = mixer.score_mods if isinstance(mixer, AttentionConfig) else ()
    return next((mod for mod in mods if isinstance(mod, kind)), None)


def write_positions(mixers: Sequence[PartConfig], windows: Sequence[WindowConfig | None]) -> dict[str, Any]:
    """The keys of rotary positions, of the first layer of each type."""
    keys: dict[str, Any] = {}
    tables: dict[str, Any] = {}
    for mixer, window in zip(mixers, windows, strict=True):
        layer_type, rotary = SLIDING if window else FULL, find_mod(mixer, RotaryConfig)
        if rotary and layer_type not in tables:
            written = write_rope(rotary)
            tables[layer_type] = written.pop("rope_parameters")
            keys |= {key: value for key, value in written.items() if key == "max_position_embeddings"}
    return keys | ({"rope_parameters": tables} if tables else {})


def keep_fused(name: str) -> WeightConverter:
    """A Hugging Face module with the rows of several projections, in Headwise's order."""
    return WeightConverter((name,), write=lambda tensor, sizes: (tensor,))


LAYER, HF_LAYER = "encoder.stack.layers.{i}", "model.layers.{i}"
TRANSFORM: NameMap = {"head.transform.dense": "head.dense", "head.transform.norm": "head.norm"}
MODERNBERT = Architecture(
    hf_config=HfModernBertConfig,
    config=BertConfig,
    classes={
        "ModernBertForMaskedLM": "masked",
        "ModernBertForTokenClassification": "tag",
        "ModernBertForSequenceClassification": "classify",
        "ModernBertForQuestionAnswering": "answer",
        "ModernBertModel": "encode",
    },
    name_map={
        "encoder.embed.table": "model.embeddings.tok_embeddings",
        "encoder.embed.norm": "model.embeddings.norm",
        f"{LAYER}.norms.0": f"{HF_LAYER}.attn_norm",
        f"{LAYER}.parts.0.qkv.project": keep_fused(f"{HF_LAYER}.attn.Wqkv"),
        f"{LAYER}.parts.0.out": f"{HF_LAYER}.attn.Wo",
        f"{LAYER}.norms.1": f"{HF_LAYER}.mlp_norm",
        f"{LAYER}.parts.1.inner": keep_fused(f"{HF_LAYER}.mlp.Wi"),
        f"{LAYER}.parts.1.outer": f"{HF_LAYER}.mlp.Wo",
        "encoder.stack.final": "model.final_norm",
    },
    head_maps={
        "masked": {
            **TRANSFORM,
            "head.table": "decoder",
            "head.bias": WeightConverter(("decoder.bias",), optional=True),
        },
        "tag": {**TRANSFORM, **LABELS},
        "classify": {**TRANSFORM, **LABELS},
        "answer": {"head.0.dense": "head.dense", "head.0.norm": "head.norm", "head.1": "classifier"},
    },
    base_prefix="model.",
    special_names={"bos": "cls", "eos": "sep"},
    extra_special_ids={"bos": "bos", "eos": "eos"},
)
