"""T5 of `transformers`, versions 1.0 and 1.1."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, ClassVar, Literal, Self, cast

from pydantic import Field, model_validator

from headwise.config.base import Problems
from headwise.errors import UserError
from headwise.interop.hf.architecture import (
    GATES,
    OURS,
    Architecture,
    Id,
    Key,
    Plain,
    Theirs,
    activation_of,
    fused,
)
from headwise.interop.hf.bart import UNUSED
from headwise.models.switch import SwitchConfig
from headwise.models.t5 import T5Config

TIED = {  # to one table for the words of both sides and of the outputs
    "encoder.embed_tokens.weight": "shared.weight",
    "decoder.embed_tokens.weight": "shared.weight",
    "lm_head.weight": "shared.weight",
}
UNLIMITED = 2**31  # tokens: distances are all that counts


class TheirT5(Theirs):
    """DISCREPANCY: `transformers` ties the outputs of every T5 that it makes, also where `tie_word_embeddings` is
    false, which there only says that they are not scaled (version 1.1). A folder that has both tables is loaded untied,
    there as here."""

    aliases: ClassVar[Mapping[str, str]] = {
        "hidden_size": "d_model",
        "num_attention_heads": "num_heads",
        "num_hidden_layers": "num_layers",
        "head_dim": "d_kv",
    }
    unread = ("n_positions",)

    model_type: Literal["t5"] = "t5"
    is_encoder_decoder: bool = True  # type: ignore[assignment]  # an encoder alone says false
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
    dense_act_fn: str | None = None  # these two win over what feed_forward_proj says
    is_gated_act: bool | None = None
    tie_word_embeddings: bool = True
    scale_decoder_outputs: bool | None = None
    pad_token_id: Id = 0
    eos_token_id: Id = 1
    decoder_start_token_id: Id = 0

    @model_validator(mode="before")
    @classmethod
    def _depth(cls, data: Any) -> Any:
        """An alias of num_layers is for the encoder alone: the decoder's depth is settled before it is resolved."""
        if not isinstance(data, Mapping) or data.get("num_decoder_layers") is not None:
            return data
        return {**data, "num_decoder_layers": data.get("num_layers", cls.model_fields["num_layers"].default)}

    @model_validator(mode="after")
    def _known(self) -> Self:
        plain, gated = self.parts
        if plain not in OURS or (gated and OURS[plain] not in GATES):
            key = "feed_forward_proj" if self.dense_act_fn is None else "dense_act_fn"
            what = f"{plain!r} is not supported{' in a gate' * gated}"
            raise Problems([((key,), f"{what}; relu and gated-gelu are the usual ones")])
        return self

    @property
    def parts(self) -> tuple[str, bool]:
        """The activation, and whether it is that of a gate."""
        gated = self.feed_forward_proj.startswith("gated-")
        # What version 1.1 computes under the name of gated-gelu is the tanh form.
        named = "gelu_new" if self.feed_forward_proj == "gated-gelu" else self.feed_forward_proj.removeprefix("gated-")
        return self.dense_act_fn or named, gated if self.is_gated_act is None else self.is_gated_act

    @property
    def context(self) -> int:
        return UNLIMITED

    @property
    def activation(self) -> str:
        plain, gated = OURS[cast(Plain, self.parts[0])], self.parts[1]
        return GATES[plain] if gated else plain

    def tied(self, name: str) -> dict[str, str]:
        return {key: TIED[key] for key in list(TIED)[:1]} if name == "T5EncoderModel" else TIED

    def ours(self, task: str, names: Collection[str]) -> dict[str, Any]:
        if task == "transduce" and not self.is_encoder_decoder:
            raise UserError("config.json: is_encoder_decoder: is false, but the model has a decoder; correct it")
        scaled = self.tie_word_embeddings if self.scale_decoder_outputs is None else self.scale_decoder_outputs
        return {
            "width": self.d_model,
            "head_width": self.d_kv,
            "heads": self.num_heads,
            "hidden": self.d_ff,
            "encoder": {"depth": self.num_layers},
            "decoder": {"depth": self.num_decoder_layers or self.num_layers},
            "activation": self.activation,
            "positions": {
                "kind": "t5",
                "buckets": self.relative_attention_num_buckets,
                "max_distance": self.relative_attention_max_distance,
            },
            "norm": {"kind": "rms", "eps": self.layer_norm_epsilon},
            "dropout": self.dropout_rate,
            "attention_dropout": self.dropout_rate,
            "hidden_dropout": self.dropout_rate,
            "scale_outputs": scaled,
        }

    @classmethod
    def of(cls, config: Any, vocab: int) -> Self:
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
            "feed_forward_proj": "gated-gelu" if config.activation == "geglu_tanh" else gate + activation_of(config),
            "dense_act_fn": activation_of(config),
            "is_gated_act": bool(gate),
            "tie_word_embeddings": config.tie not in ("inputs", "none"),
            "scale_decoder_outputs": config.scale_outputs,
        }
        return cls.model_validate(data)


def block(side: str, memory: bool) -> dict[str, Any]:
    """The layers of one stack; where there is a memory to attend to, the feed-forward network comes third."""
    ours, theirs, last = f"{side}.stack.layers.{{i}}", f"{side}.block.{{i}}.layer", 2 if memory else 1
    across, dense = f"{theirs}.1.EncDecAttention", f"{theirs}.{last}.DenseReluDense"
    found = {
        f"{ours}.norms.0": f"{theirs}.0.layer_norm",
        f"{ours}.parts.0.qkv.project": fused(*(f"{theirs}.0.SelfAttention.{part}" for part in "qkv")),
        f"{ours}.parts.0.out": f"{theirs}.0.SelfAttention.o",
        f"{ours}.parts.0.score_mods.0.table": f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias",
        f"{ours}.norms.{last}": f"{theirs}.{last}.layer_norm",
        f"{ours}.parts.{last}.inner": Key((f"{dense}.wi_0", f"{dense}.wi_1"), others=(f"{dense}.wi",)),
        f"{ours}.parts.{last}.outer": f"{dense}.wo",
        f"{side}.stack.final": f"{side}.final_layer_norm",
    }
    if memory:
        found |= {
            f"{ours}.norms.1": f"{theirs}.1.layer_norm",
            f"{ours}.parts.1.qkv.query": f"{across}.q",
            f"{ours}.parts.1.qkv.project": fused(f"{across}.k", f"{across}.v"),
            f"{ours}.parts.1.out": f"{across}.o",
        }
    return found


T5 = Architecture(
    theirs=TheirT5,
    config=T5Config,
    relatives=(SwitchConfig,),
    classes={"T5ForConditionalGeneration": "transduce", "T5EncoderModel": "encode"},
    keys={
        "{side}.embed.table": "{side}.embed_tokens",
        **block("encoder", memory=False),
        **block("decoder", memory=True),
        "decoder.head.table": "lm_head",
    },
    ignored={
        r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight": "older versions stored it",
        r"shared\.weight": UNUSED,
    },
    roles={"bos": "decoder_start"},
)
