"""`config.json` of Hugging Face Marian folders <-> TransformerConfig.

Marian (Junczys-Dowmunt et al. 2018): post-norm, sinusoids with all sines first, a bias on the logits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from headwise.config.base import Config, validate
from headwise.config.parts import LayerNormConfig, SinusoidConfig
from headwise.errors import UserError, nearest
from headwise.interop.plain import ATTENTION, CROSS, MLP, PlainStack, plain_stack
from headwise.models.transformer import StackConfig, TransformerConfig
from headwise.text import BOS, EOS, PAD

# Of several names for one activation the first is written.
ACTIVATIONS = {
    "relu": ("relu",),
    "gelu": ("gelu",),
    "gelu_tanh": ("gelu_pytorch_tanh", "gelu_new", "gelu_fast"),
    "swish": ("swish", "silu"),
    "sigmoid": ("sigmoid",),
    "tanh": ("tanh",),
}
OURS = {theirs: ours for ours, names in ACTIVATIONS.items() for theirs in names}
POSITIONS = 1024  # rows of the table that Hugging Face makes for its sinusoids


class MarianConfig(Config):
    """The keys that matter here, with the defaults of `transformers`."""

    model_type: Literal["marian"]
    vocab_size: int = Field(58101, gt=0)
    decoder_vocab_size: int | None = Field(None, gt=0)
    d_model: int = Field(1024, gt=0)
    encoder_layers: int = Field(12, gt=0)
    decoder_layers: int = Field(12, gt=0)
    encoder_attention_heads: int = Field(16, gt=0)
    decoder_attention_heads: int = Field(16, gt=0)
    encoder_ffn_dim: int = Field(4096, gt=0)
    decoder_ffn_dim: int = Field(4096, gt=0)
    activation_function: str = "gelu"
    dropout: float = 0.1
    attention_dropout: float = 0.0
    scale_embedding: bool = False
    share_encoder_decoder_embeddings: bool = True
    tie_word_embeddings: bool = True
    pad_token_id: int = 58100
    eos_token_id: int = 0
    decoder_start_token_id: int = 58100
    max_position_embeddings: int = Field(POSITIONS, gt=0)
    # Hugging Face's Marian has but one form of these; older files still say it.
    normalize_before: Literal[False] = False
    normalize_embedding: Literal[False] = False
    add_final_layer_norm: Literal[False] = False
    static_position_embeddings: Literal[True] = True

    @classmethod
    def read(cls, data: Mapping[str, Any], where: str = "config.json") -> MarianConfig:
        """Other keys are left alone: there are many, and they do not touch the numbers."""
        known = {key: value for key, value in data.items() if key in cls.model_fields}
        config: MarianConfig = validate(cls, known, where)
        if config.activation_function not in OURS:
            hint = nearest(config.activation_function, OURS)
            raise UserError(f"{where}: activation_function '{config.activation_function}' is not supported; {hint}")
        return config

    @property
    def one_table(self) -> bool:
        """Hugging Face shares the source's and the target's table only where it ties at all."""
        return self.share_encoder_decoder_embeddings and self.tie_word_embeddings

    @property
    def tie(self) -> Literal["all", "target", "none"]:
        """Tables without Marian's usual scale become tables of their own: ours are always scaled."""
        if not (self.tie_word_embeddings and self.scale_embedding):
            return "none"
        return "all" if self.one_table else "target"


def config_from_hf(config: Mapping[str, Any]) -> TransformerConfig:
    """The model that a Marian `config.json` describes."""
    theirs = MarianConfig.read(config)
    same = (theirs.encoder_attention_heads, theirs.encoder_ffn_dim) == (
        theirs.decoder_attention_heads,
        theirs.decoder_ffn_dim,
    )
    heads, hidden = theirs.decoder_attention_heads, theirs.decoder_ffn_dim
    own = (ATTENTION.changed(heads=heads), CROSS.changed(heads=heads), MLP.changed(hidden=hidden))
    data = {
        "width": theirs.d_model,
        "heads": theirs.encoder_attention_heads,
        "hidden": theirs.encoder_ffn_dim,
        "activation": OURS[theirs.activation_function],
        "encoder": StackConfig(depth=theirs.encoder_layers),
        "decoder": StackConfig(depth=theirs.decoder_layers, layers=() if same else (own,)),
        "positions": SinusoidConfig(halves=True),
        "dropout": theirs.dropout,
        "attention_dropout": theirs.attention_dropout,
        "tie": theirs.tie,
        "output_bias": True,
    }
    built: TransformerConfig = validate(TransformerConfig, data, "config.json")
    return built


def config_to_hf(config: TransformerConfig, source_vocab: int, target_vocab: int = 0) -> dict[str, Any]:
    """The `config.json` of a model that was built for these vocabularies; refuses what Marian is not."""
    encoder, decoder = _stacks(config)
    tie = config.tie if config.tie != "auto" else "target" if target_vocab else "all"
    names = MarianConfig(
        model_type="marian",
        vocab_size=source_vocab,
        decoder_vocab_size=target_vocab or source_vocab,
        d_model=config.width,
        encoder_layers=encoder.depth,
        decoder_layers=decoder.depth,
        encoder_attention_heads=encoder.heads,
        decoder_attention_heads=decoder.heads,
        encoder_ffn_dim=encoder.hidden,
        decoder_ffn_dim=decoder.hidden,
        activation_function=ACTIVATIONS[encoder.activation][0],
        dropout=config.dropout,
        attention_dropout=config.attention_dropout,
        scale_embedding=True,
        share_encoder_decoder_embeddings=tie == "all",
        tie_word_embeddings=tie != "none",
        pad_token_id=PAD,
        eos_token_id=EOS,
        decoder_start_token_id=BOS,
    )
    others = {"architectures": ["MarianMTModel"], "bos_token_id": BOS, "forced_eos_token_id": EOS}
    return names.model_dump(mode="json") | others | {"is_encoder_decoder": True, "dtype": "float32"}


def _stacks(config: TransformerConfig) -> tuple[PlainStack, PlainStack]:
    encoder, decoder = plain_stack(config, "encoder"), plain_stack(config, "decoder")
    needs = {
        "wiring: Marian has only 'post'": config.wiring.kind == "post",
        "positions: Marian has only 'sinusoid'": config.positions.kind == "sinusoid",
        "norm: Marian has only 'layer' with eps 1e-5": config.norm == LayerNormConfig(),
        "start_id: a Marian folder of ours starts from 1": config.start_id == BOS,
        "attention_bias: Marian always has it": config.attention_bias,
        "mlp_bias: Marian always has it": config.mlp_bias,
        f"activation: Marian has only {', '.join(ACTIVATIONS)}, the same on both sides": (
            encoder.activation == decoder.activation and encoder.activation in ACTIVATIONS
        ),
        "layers: Marian's heads must make up the width": all(
            stack.heads * stack.head_width == config.width for stack in (encoder, decoder)
        ),
    }
    for sentence, met in needs.items():
        if not met:
            raise UserError(f"{sentence}; this model cannot become a Marian folder, export it to CTranslate2 instead")
    return encoder, decoder
