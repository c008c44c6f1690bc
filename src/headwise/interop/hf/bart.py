"""BART of `transformers`."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from headwise.interop.hf.architecture import OURS, Architecture, Id, Key, Plain, Theirs, activation_of, fused
from headwise.models.bart import BartConfig

# Other names of one key; of two stacks they mean the encoder's.
ALIASES = {
    "hidden_size": "d_model",
    "num_attention_heads": "encoder_attention_heads",
    "num_hidden_layers": "encoder_layers",
}
TIED = {  # to one table for the words of both sides and of the outputs
    "lm_head.weight": "model.shared.weight",
    "model.decoder.embed_tokens.weight": "model.shared.weight",
    "model.encoder.embed_tokens.weight": "model.shared.weight",
}


class TheirBart(Theirs):
    aliases = ALIASES
    unread = ("save_step",)

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
    activation_function: Plain = "gelu"
    max_position_embeddings: int = Field(1024, gt=0)
    dropout: float = 0.1
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    scale_embedding: bool = False
    tie_word_embeddings: bool = True
    pad_token_id: Id = 1
    bos_token_id: Id = 0
    eos_token_id: Id = 2
    decoder_start_token_id: Id = 2
    # Older files still say these; BART itself has but one form of them.
    normalize_before: Literal[False] = False
    normalize_embedding: Literal[True] = True
    add_final_layer_norm: Literal[False] = False
    static_position_embeddings: Literal[False] = False
    add_bias_logits: Literal[False] = False
    do_blenderbot_90_layernorm: Literal[False] = False
    extra_pos_embeddings: Literal[2] = 2

    @model_validator(mode="after")
    def _alike(self) -> Self:
        heads, hidden = self.encoder_attention_heads, self.encoder_ffn_dim
        if (self.decoder_attention_heads, self.decoder_ffn_dim) != (heads, hidden):
            raise ValueError("encoder and decoder of different heads or ffn_dim are not supported")
        if self.decoder_start_token_id != self.eos_token_id:
            raise ValueError("a decoder_start_token_id that is not the eos_token_id is not supported")
        return self

    @property
    def context(self) -> int:
        return self.max_position_embeddings

    def tied(self, name: str) -> dict[str, str]:
        return TIED if self.tie_word_embeddings else {}

    def ours(self, task: str, names: Collection[str]) -> dict[str, Any]:
        return {
            "width": self.d_model,
            "heads": self.encoder_attention_heads,
            "hidden": self.encoder_ffn_dim,
            "encoder": {"depth": self.encoder_layers},
            "decoder": {"depth": self.decoder_layers},
            "activation": OURS[self.activation_function],
            "positions": {"kind": "learned", "max_length": self.max_position_embeddings, "offset": 2},
            "dropout": self.dropout,
            "attention_dropout": self.attention_dropout,
            "hidden_dropout": self.activation_dropout,
            "scale_embeddings": self.scale_embedding,
            "output_bias": "final_logits_bias" in names,
        }

    @classmethod
    def of(cls, config: Any, vocab: int) -> Self:
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
            "activation_function": activation_of(config),
            "max_position_embeddings": getattr(config.positions, "max_length", 1024),
            "dropout": config.dropout,
            "attention_dropout": config.attention_dropout,
            "activation_dropout": config.hidden_dropout,
            "scale_embedding": config.scale_embeddings,
            "tie_word_embeddings": config.tie in ("auto", "all"),
        }
        return cls.model_validate(data)


def block(side: str, memory: bool) -> dict[str, str | Key]:
    """The layers of one stack; where there is a memory to attend to, the feed-forward network comes third."""
    ours, theirs, last = f"{side}.stack.layers.{{i}}", f"model.{side}.layers.{{i}}", 2 if memory else 1
    found: dict[str, str | Key] = {
        f"{ours}.parts.0.qkv.project": fused(*(f"{theirs}.self_attn.{part}_proj" for part in "qkv")),
        f"{ours}.parts.0.out": f"{theirs}.self_attn.out_proj",
        f"{ours}.norms.0": f"{theirs}.self_attn_layer_norm",
        f"{ours}.parts.{last}.inner": f"{theirs}.fc1",
        f"{ours}.parts.{last}.outer": f"{theirs}.fc2",
        f"{ours}.norms.{last}": f"{theirs}.final_layer_norm",
    }
    if memory:
        found |= {
            f"{ours}.parts.1.qkv.query": f"{theirs}.encoder_attn.q_proj",
            f"{ours}.parts.1.qkv.project": fused(*(f"{theirs}.encoder_attn.{part}_proj" for part in "kv")),
            f"{ours}.parts.1.out": f"{theirs}.encoder_attn.out_proj",
            f"{ours}.norms.1": f"{theirs}.encoder_attn_layer_norm",
        }
    return found


UNUSED = "transformers reads the table of each side, not this one, where they are not tied"
BART = Architecture(
    theirs=TheirBart,
    config=BartConfig,
    classes={"BartForConditionalGeneration": "transduce"},
    keys={
        "{side}.embed.table": "model.{side}.embed_tokens",
        "{side}.embed.positions": "model.{side}.embed_positions",
        "{side}.embed.norm": "model.{side}.layernorm_embedding",
        **block("encoder", memory=False),
        **block("decoder", memory=True),
        "decoder.head.table": "lm_head",
        "decoder.head.bias": Key(
            ("final_logits_bias",),
            read=lambda parts: parts[0].squeeze(0),  # (1, V) -> (V,)
            write=lambda tensor, sizes: (tensor.unsqueeze(0),),
            optional=True,
        ),
    },
    stem="model.",
    ignored={r"model\.shared\.weight": UNUSED, r"(model\.)?(encoder|decoder)\.version": "counts formats"},
    also={"decoder_start": "eos", "forced_bos": "bos", "forced_eos": "eos"},
)
