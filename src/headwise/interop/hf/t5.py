"""T5 of `transformers`, versions 1.0 and 1.1, and mT5 (Xue et al. 2021), its version 1.1 of many languages."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal, Self, cast

from pydantic import Field, model_validator

from headwise.config.base import Problems
from headwise.errors import UserError
from headwise.interop.hf.architecture import (
    ACTIVATIONS,
    GATES,
    Architecture,
    HfActivation,
    HfTextConfig,
    NameMap,
    TokenId,
    WeightConverter,
    add_prefix,
    fuse,
    name_activation,
)
from headwise.interop.hf.bart import DECODER_HEADS, READ_DECODER, UNUSED
from headwise.interop.hf.bert import LABELS
from headwise.models.switch import SwitchConfig
from headwise.models.t5 import T5Config

TIED_WEIGHTS = {  # one table for source, target and output embeddings
    "encoder.embed_tokens.weight": "shared.weight",
    "decoder.embed_tokens.weight": "shared.weight",
    "lm_head.weight": "shared.weight",
}
# Of these classes without a decoder or without an output table, the first of them.
TIED_COUNTS = {"EncoderModel": 1, "TokenClassification": 1, "SequenceClassification": 2, "QuestionAnswering": 2}
OLD = "older versions stored it"
UNLIMITED = 2**31  # tokens: relative positions set no limit


class HfT5Config(HfTextConfig):
    """DISCREPANCY: `transformers` ties the output table of every new T5, also where `tie_word_embeddings` is false,
    which only means that outputs are not scaled (version 1.1). A checkpoint with both tables is loaded untied, there as
    here."""

    aliases: ClassVar[Mapping[str, str]] = {
        "hidden_size": "d_model",
        "num_attention_heads": "num_heads",
        "num_hidden_layers": "num_layers",
        "head_dim": "d_kv",
    }
    ignored_keys = ("n_positions",)

    model_type: Literal["t5"] = "t5"
    is_encoder_decoder: bool = True  # type: ignore[assignment]  # false in T5EncoderModel
    vocab_size: int = Field(32128, gt=0)
    d_model: int = Field(512, gt=0)
    d_kv: int = Field(64, gt=0)
    d_ff: int = Field(2048, gt=0)
    num_layers: int = Field(6, gt=0)
    num_decoder_layers: int | None = Field(None, gt=0)
    num_heads: int = Field(8, gt=0)
    relative_attention_num_buckets: int = Field(32, gt=0)
    relative_attention_max_distance: int = Field(128, gt=0)
    dropout_rate: float = 0.1
    layer_norm_epsilon: float = 1e-6
    feed_forward_proj: str = "relu"
    dense_act_fn: str | None = None  # these two take precedence over feed_forward_proj
    is_gated_act: bool | None = None
    tie_word_embeddings: bool = True
    scale_decoder_outputs: bool | None = None
    pad_token_id: TokenId = 0
    eos_token_id: TokenId = 1
    decoder_start_token_id: TokenId = 0

    @model_validator(mode="before")
    @classmethod
    def _set_decoder_depth(cls, data: Any) -> Any:
        """Set the decoder's default depth before aliases are resolved: it is num_layers, not num_hidden_layers."""
        if not isinstance(data, Mapping) or data.get("num_decoder_layers") is not None:
            return data
        return {**data, "num_decoder_layers": data.get("num_layers", cls.model_fields["num_layers"].default)}

    @model_validator(mode="after")
    def _check_activation(self) -> Self:
        plain, gated = self.activation_parts
        if plain not in ACTIVATIONS or (gated and ACTIVATIONS[plain] not in GATES):
            key = "feed_forward_proj" if self.dense_act_fn is None else "dense_act_fn"
            problem = f"{plain!r} is not supported{' in a gate' * gated}"
            raise Problems([((key,), f"{problem}; relu and gated-gelu are the usual ones")])
        return self

    @property
    def activation_parts(self) -> tuple[str, bool]:
        """The activation, and whether the feed-forward network is gated."""
        gated = self.feed_forward_proj.startswith("gated-")
        # gated-gelu of version 1.1 is the tanh approximation.
        name = "gelu_new" if self.feed_forward_proj == "gated-gelu" else self.feed_forward_proj.removeprefix("gated-")
        return self.dense_act_fn or name, gated if self.is_gated_act is None else self.is_gated_act

    @property
    def scales_outputs(self) -> bool:
        return self.tie_word_embeddings if self.scale_decoder_outputs is None else self.scale_decoder_outputs

    @property
    def context(self) -> int:
        return UNLIMITED

    @property
    def activation(self) -> str:
        plain, gated = ACTIVATIONS[cast(HfActivation, self.activation_parts[0])], self.activation_parts[1]
        return GATES[plain] if gated else plain

    def tied_weights(self, class_name: str) -> dict[str, str]:
        count = next((count for ending, count in TIED_COUNTS.items() if class_name.endswith(ending)), 3)
        prefix = "transformer." if class_name.endswith("Classification") else ""
        return {prefix + name: prefix + source for name, source in list(TIED_WEIGHTS.items())[:count]}

    def to_settings(self, task: str, names: Collection[str]) -> dict[str, Any]:
        if task in ("transduce", *READ_DECODER) and not self.is_encoder_decoder:
            raise UserError("config.json: is_encoder_decoder: is false, but the model has a decoder; correct it")
        return (
            list_settings(self)
            | {"activation": self.activation, "scale_outputs": self.scales_outputs}
            | (READ_DECODER.get(task, {}))
        )

    @classmethod
    def from_model_config(cls, config: Any, vocab: int) -> Self:
        gate = "gated-" if config.activation in GATES.values() else ""
        data = {
            "vocab_size": vocab,
            "d_model": config.width,
            "d_kv": config.head_width or config.width // config.heads,
            "d_ff": config.hidden or 4 * config.width,
            "num_layers": config.encoder.depth,
            "num_decoder_layers": config.decoder.depth,
            "num_heads": config.heads,
            "relative_attention_num_buckets": getattr(config.positions, "buckets", 32),
            "relative_attention_max_distance": getattr(config.positions, "max_distance", 128),
            "dropout_rate": config.dropout,
            "layer_norm_epsilon": config.norm.eps,
            "feed_forward_proj": "gated-gelu" if config.activation == "geglu_tanh" else gate + name_activation(config),
            "dense_act_fn": name_activation(config),
            "is_gated_act": bool(gate),
            "tie_word_embeddings": config.tie not in ("inputs", "none"),
            "scale_decoder_outputs": config.scale_outputs,
        }
        return cls.model_validate(data)


class HfMT5Config(HfT5Config):
    """Outputs are not scaled, and `tie_word_embeddings` changes nothing: a checkpoint with an output table is untied,
    one without is tied. A model with both is written as T5 1.1, which computes the same."""

    model_type: Literal["mt5"] = "mt5"  # type: ignore[assignment]
    vocab_size: int = Field(250112, gt=0)
    d_ff: int = Field(1024, gt=0)
    num_layers: int = Field(8, gt=0)
    num_heads: int = Field(6, gt=0)
    feed_forward_proj: str = "gated-gelu"
    scale_decoder_outputs: Literal[False] = False

    @property
    def scales_outputs(self) -> bool:
        return False


def list_settings(hf_config: Any) -> dict[str, Any]:
    """The settings of T5 and its relatives that have the same keys."""
    return {
        "width": hf_config.d_model,
        "head_width": hf_config.d_kv,
        "heads": hf_config.num_heads,
        "hidden": hf_config.d_ff,
        "encoder": {"depth": hf_config.num_layers},
        "decoder": {"depth": hf_config.num_decoder_layers or hf_config.num_layers},
        "positions": {
            "kind": "t5",
            "buckets": hf_config.relative_attention_num_buckets,
            "max_distance": hf_config.relative_attention_max_distance,
        },
        "norm": {"kind": "rms", "eps": hf_config.layer_norm_epsilon},
        "dropout": hf_config.dropout_rate,
        "attention_dropout": hf_config.dropout_rate,
        "hidden_dropout": hf_config.dropout_rate,
    }


def map_layers(side: str, memory: bool) -> dict[str, Any]:
    """Tensor names of one stack; with cross-attention to a memory, the feed-forward network is the third part."""
    layer, hf_layer, last = f"{side}.stack.layers.{{i}}", f"{side}.block.{{i}}.layer", 2 if memory else 1
    cross, dense = f"{hf_layer}.1.EncDecAttention", f"{hf_layer}.{last}.DenseReluDense"
    name_map = {
        f"{layer}.norms.0": f"{hf_layer}.0.layer_norm",
        f"{layer}.parts.0.qkv.project": fuse(*(f"{hf_layer}.0.SelfAttention.{part}" for part in "qkv")),
        f"{layer}.parts.0.out": f"{hf_layer}.0.SelfAttention.o",
        f"{layer}.parts.0.score_mods.0.table": f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias",
        f"{layer}.norms.{last}": f"{hf_layer}.{last}.layer_norm",
        f"{layer}.parts.{last}.inner": WeightConverter(
            (f"{dense}.wi_0", f"{dense}.wi_1"), alternatives=((f"{dense}.wi",),)
        ),
        f"{layer}.parts.{last}.outer": f"{dense}.wo",
        f"{side}.stack.final": f"{side}.final_layer_norm",
    }
    if memory:
        name_map |= {
            f"{layer}.norms.1": f"{hf_layer}.1.layer_norm",
            f"{layer}.parts.1.qkv.query": f"{cross}.q",
            f"{layer}.parts.1.qkv.project": fuse(f"{cross}.k", f"{cross}.v"),
            f"{layer}.parts.1.out": f"{cross}.o",
        }
    return name_map


NAMES: NameMap = {
    "{side}.embed.table": "{side}.embed_tokens",
    **map_layers("encoder", memory=False),
    **map_layers("decoder", memory=True),
}


T5 = Architecture(
    hf_config=HfT5Config,
    config=T5Config,
    relatives=(SwitchConfig,),
    classes={
        "T5ForConditionalGeneration": "transduce",
        "T5EncoderModel": "encode",
        "T5ForTokenClassification": "tag",
        "T5ForSequenceClassification": "classify",
        "T5ForQuestionAnswering": "answer",
    },
    name_map={**NAMES, "decoder.head.table": "lm_head"},
    head_maps={
        "tag": {**add_prefix("transformer.", NAMES), **LABELS},
        "classify": {**add_prefix("transformer.", NAMES), **DECODER_HEADS["classify"]},
        "answer": DECODER_HEADS["answer"],
    },
    ignored={
        r"(transformer\.)?decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight": OLD,
        r"(transformer\.)?shared\.weight": UNUSED,
    },
    special_names={"bos": "decoder_start"},
)
MT5 = replace(
    T5,
    hf_config=HfMT5Config,
    relatives=(),
    classes={f"M{name}": task for name, task in T5.classes.items()},
)
