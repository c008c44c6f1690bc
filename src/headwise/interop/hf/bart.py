"""BART of `transformers`."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from headwise.config.base import Problems
from headwise.interop.hf.architecture import (
    ACTIVATIONS,
    Architecture,
    HfActivation,
    HfTextConfig,
    NameMap,
    TokenId,
    WeightConverter,
    fuse,
    name_activation,
)
from headwise.models.bart import BartConfig
from headwise.text import BOS, EOS

FOREIGN = "use transformers for this one"
# `attribute_map` of `transformers`; of two stacks it means the encoder's.
ALIASES = {
    "hidden_size": "d_model",
    "num_attention_heads": "encoder_attention_heads",
    "num_hidden_layers": "encoder_layers",
}
TIED_WEIGHTS = {  # one table for source, target and output embeddings
    "lm_head.weight": "model.shared.weight",
    "model.decoder.embed_tokens.weight": "model.shared.weight",
    "model.encoder.embed_tokens.weight": "model.shared.weight",
}


# A text classifier reads the decoder's output at the last EOS, a question answerer all of its outputs.
READ_DECODER: dict[str, dict[str, str]] = {
    "classify": {"labels_from": "decoder", "pool": "pooler_last"},
    "answer": {"labels_from": "decoder"},
}
DECODER_HEADS: dict[str, NameMap] = {
    "classify": {
        "pool.1.dense": "classification_head.dense",
        "head.table": "classification_head.out_proj",
        "head.bias": "classification_head.out_proj.bias",
    },
    "answer": {"head": "qa_outputs"},
}


class HfBartConfig(HfTextConfig):
    aliases = ALIASES
    ignored_keys = ("save_step",)

    model_type: Literal["bart"] = "bart"
    is_encoder_decoder: Literal[True] = True  # type: ignore[assignment]
    vocab_size: int = Field(50265, gt=0)
    d_model: int = Field(1024, gt=0)
    encoder_layers: int = Field(12, gt=0)
    decoder_layers: int = Field(12, gt=0)
    encoder_attention_heads: int = Field(16, gt=0)
    decoder_attention_heads: int = Field(16, gt=0)
    encoder_ffn_dim: int = Field(4096, gt=0)
    decoder_ffn_dim: int = Field(4096, gt=0)
    activation_function: HfActivation = "gelu"
    max_position_embeddings: int = Field(1024, gt=0)
    dropout: float = 0.1
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    scale_embedding: bool = False
    tie_word_embeddings: bool = True
    pad_token_id: TokenId = 1
    bos_token_id: TokenId = 0
    eos_token_id: TokenId = 2
    decoder_start_token_id: TokenId = 2
    forced_bos_token_id: TokenId = None  # generation_config.json decides, where there is one
    # Keys of older files; BART of `transformers` supports one value of each.
    normalize_before: Literal[False] = False
    normalize_embedding: Literal[True] = True
    add_final_layer_norm: Literal[False] = False
    static_position_embeddings: Literal[False] = False
    add_bias_logits: Literal[False] = False
    do_blenderbot_90_layernorm: Literal[False] = False
    extra_pos_embeddings: Literal[2] = 2

    @model_validator(mode="after")
    def _check_equal(self) -> Self:
        heads, hidden = self.encoder_attention_heads, self.encoder_ffn_dim
        if (self.decoder_attention_heads, self.decoder_ffn_dim) != (heads, hidden):
            raise ValueError(f"encoder and decoder of different heads or ffn_dim are not supported; {FOREIGN}")
        ends = self.eos_token_id if isinstance(self.eos_token_id, tuple) else (self.eos_token_id,)
        if self.decoder_start_token_id != ends[0]:
            message = f"is {self.decoder_start_token_id}, not EOS ({ends[0]}), from which BART starts here; {FOREIGN}"
            raise Problems([(("decoder_start_token_id",), message)])
        return self

    @property
    def context(self) -> int:
        return self.max_position_embeddings

    @property
    def forces_bos(self) -> bool:
        """Whether the first token that is generated, after the EOS that the decoder starts from, is always BOS."""
        return self.forced_bos_token_id is not None and self.forced_bos_token_id == self.bos_token_id

    def tied_weights(self, class_name: str) -> dict[str, str]:
        first = 0 if class_name.endswith("ForConditionalGeneration") else 1  # the output table is tied first
        return dict(list(TIED_WEIGHTS.items())[first:]) if self.tie_word_embeddings else {}

    def to_settings(self, task: str, names: Collection[str]) -> dict[str, Any]:
        return {
            "width": self.d_model,
            "heads": self.encoder_attention_heads,
            "hidden": self.encoder_ffn_dim,
            "encoder": {"depth": self.encoder_layers},
            "decoder": {"depth": self.decoder_layers},
            "activation": ACTIVATIONS[self.activation_function],
            "positions": {"kind": "learned", "max_length": self.max_position_embeddings, "offset": 2},
            "dropout": self.dropout,
            "attention_dropout": self.attention_dropout,
            "hidden_dropout": self.activation_dropout,
            "scale_embeddings": self.scale_embedding,
            "output_bias": "final_logits_bias" in names,
            "start_id": EOS if task == "transduce" and not self.forces_bos else BOS,
            **READ_DECODER.get(task, {}),
        }

    @classmethod
    def from_model_config(cls, config: Any, vocab: int) -> Self:
        hidden = config.hidden or 4 * config.width
        data = {
            "vocab_size": vocab,
            "d_model": config.width,
            "encoder_layers": config.encoder.depth,
            "decoder_layers": config.decoder.depth,
            "encoder_attention_heads": config.heads,
            "decoder_attention_heads": config.heads,
            "encoder_ffn_dim": hidden,
            "decoder_ffn_dim": hidden,
            "activation_function": name_activation(config),
            "max_position_embeddings": getattr(config.positions, "max_length", 1024),
            "dropout": config.dropout,
            "attention_dropout": config.attention_dropout,
            "activation_dropout": config.hidden_dropout,
            "scale_embedding": config.scale_embeddings,
            "tie_word_embeddings": config.tie in ("auto", "all"),
            "forced_bos_token_id": cls.model_fields["bos_token_id"].default if config.start_id == BOS else None,
        }
        return cls.model_validate(data)


def map_layers(side: str, memory: bool) -> dict[str, str | WeightConverter]:
    """Tensor names of one stack; with cross-attention to a memory, the feed-forward network is the third part."""
    layer, hf_layer, last = f"{side}.stack.layers.{{i}}", f"model.{side}.layers.{{i}}", 2 if memory else 1
    name_map: dict[str, str | WeightConverter] = {
        f"{layer}.parts.0.qkv.project": fuse(*(f"{hf_layer}.self_attn.{part}_proj" for part in "qkv")),
        f"{layer}.parts.0.out": f"{hf_layer}.self_attn.out_proj",
        f"{layer}.norms.0": f"{hf_layer}.self_attn_layer_norm",
        f"{layer}.parts.{last}.inner": f"{hf_layer}.fc1",
        f"{layer}.parts.{last}.outer": f"{hf_layer}.fc2",
        f"{layer}.norms.{last}": f"{hf_layer}.final_layer_norm",
    }
    if memory:
        name_map |= {
            f"{layer}.parts.1.qkv.query": f"{hf_layer}.encoder_attn.q_proj",
            f"{layer}.parts.1.qkv.project": fuse(*(f"{hf_layer}.encoder_attn.{part}_proj" for part in "kv")),
            f"{layer}.parts.1.out": f"{hf_layer}.encoder_attn.out_proj",
            f"{layer}.norms.1": f"{hf_layer}.encoder_attn_layer_norm",
        }
    return name_map


UNUSED = "transformers reads the table of each side instead where they are not tied"
BART = Architecture(
    hf_config=HfBartConfig,
    config=BartConfig,
    classes={
        "BartForConditionalGeneration": "transduce",
        "BartForSequenceClassification": "classify",
        "BartForQuestionAnswering": "answer",
    },
    head_maps=DECODER_HEADS,
    name_map={
        "{side}.embed.table": "model.{side}.embed_tokens",
        "{side}.embed.positions": "model.{side}.embed_positions",
        "{side}.embed.norm": "model.{side}.layernorm_embedding",
        **map_layers("encoder", memory=False),
        **map_layers("decoder", memory=True),
        "decoder.head.table": "lm_head",
        "decoder.head.bias": WeightConverter(
            ("final_logits_bias",),
            read=lambda parts: parts[0].squeeze(0),  # (1, V) -> (V,)
            write=lambda tensor, sizes: (tensor.unsqueeze(0),),
            optional=True,
        ),
    },
    base_prefix="model.",
    ignored={r"model\.shared\.weight": UNUSED, r"(model\.)?(encoder|decoder)\.version": "a format version"},
    extra_special_ids={"decoder_start": "eos", "forced_bos": "bos", "forced_eos": "eos"},
)
