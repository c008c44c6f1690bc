"""mBART (Liu et al. 2020) and Pegasus (Zhang et al. 2020) of `transformers`: the Transformer of 2017 with pre-norm
layers and a norm after each stack. mBART has BART's learned positions and embedding norm, Pegasus sinusoids."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from headwise.errors import UserError
from headwise.interop.hf.architecture import (
    ACTIVATIONS,
    Architecture,
    HfActivation,
    HfTextConfig,
    TokenId,
    name_activation,
)
from headwise.interop.hf.bart import ALIASES, BART, TIED_WEIGHTS
from headwise.interop.hf.marian import SINUSOIDS, choose_positions, describe_positions, find_computed_positions
from headwise.interop.hf.text import TokeniserFiles, Vocabularies
from headwise.interop.plain import ATTENTION, CROSS, MLP, read_plain_stack
from headwise.models.transformer import TransformerConfig
from headwise.text.hf import HfTokeniser


class HfPreNormConfig(HfTextConfig):
    """The keys that mBART and Pegasus share."""

    aliases = ALIASES
    ignored_keys = ("extra_pos_embeddings", "save_step")

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
    # Keys of older files; `transformers` supports one value of each.
    normalize_before: Literal[True] = True
    add_final_layer_norm: Literal[True] = True
    add_bias_logits: Literal[False] = False
    do_blenderbot_90_layernorm: Literal[False] = False

    @property
    def context(self) -> int:
        return self.max_position_embeddings

    def tied_weights(self, class_name: str) -> dict[str, str]:
        return TIED_WEIGHTS if self.tie_word_embeddings else {}

    def to_settings(self, task: str, names: Collection[str]) -> dict[str, Any]:
        heads, hidden = self.decoder_attention_heads, self.decoder_ffn_dim
        same = (heads, hidden) == (self.encoder_attention_heads, self.encoder_ffn_dim)
        decoder_layer = (ATTENTION.replace(heads=heads), CROSS.replace(heads=heads), MLP.replace(hidden=hidden))
        return {
            "width": self.d_model,
            "heads": self.encoder_attention_heads,
            "hidden": self.encoder_ffn_dim,
            "activation": ACTIVATIONS[self.activation_function],
            "encoder": {"depth": self.encoder_layers},
            "decoder": {"depth": self.decoder_layers, "layers": () if same else (decoder_layer,)},
            "wiring": "pre",
            "dropout": self.dropout,
            "attention_dropout": self.attention_dropout,
            "hidden_dropout": self.activation_dropout,
            "scale_embeddings": self.scale_embedding,
            "output_bias": "final_logits_bias" in names,
        }

    @classmethod
    def from_model_config(cls, config: Any, vocab: int) -> Self:
        encoder, decoder = read_plain_stack(config, "encoder"), read_plain_stack(config, "decoder")
        data = {
            "vocab_size": vocab,
            "d_model": config.width,
            "encoder_layers": encoder.depth,
            "decoder_layers": decoder.depth,
            "encoder_attention_heads": encoder.heads,
            "decoder_attention_heads": decoder.heads,
            "encoder_ffn_dim": encoder.hidden,
            "decoder_ffn_dim": decoder.hidden,
            "activation_function": name_activation(config),
            "max_position_embeddings": getattr(config.positions, "max_length", 1024),
            "dropout": config.dropout,
            "attention_dropout": config.attention_dropout,
            "activation_dropout": config.hidden_dropout,
            "scale_embedding": config.scale_embeddings,
            "tie_word_embeddings": config.tie in ("auto", "all"),
        }
        return cls.model_validate(data)


class HfMBartConfig(HfPreNormConfig):
    """The decoder starts with `decoder_start_token_id`, a language or EOS; without one with BOS, as `generate` does."""

    model_type: Literal["mbart"] = "mbart"
    pad_token_id: TokenId = 1
    bos_token_id: TokenId = 0
    eos_token_id: TokenId = 2
    decoder_start_token_id: TokenId = None
    normalize_embedding: Literal[True] = True
    static_position_embeddings: Literal[False] = False

    @model_validator(mode="after")
    def _set_start(self) -> Self:
        if self.decoder_start_token_id is None:
            object.__setattr__(self, "decoder_start_token_id", self.bos_token_id)
        return self

    def to_settings(self, task: str, names: Collection[str]) -> dict[str, Any]:
        positions = {"kind": "learned", "max_length": self.max_position_embeddings, "offset": 2}
        return super().to_settings(task, names) | {"positions": positions, "embedding_norm": True}


class MBartTokeniserFiles(TokeniserFiles):
    """The language of the source, which the tokenizer puts before a text (mBART-50) or after its EOS (mBART-25), is a
    token that the encoder adds."""

    def list_settings(self, vocabularies: Vocabularies) -> dict[str, Any]:
        tokenisers = self.build_tokenisers(vocabularies, [], "transduce")
        if not tokenisers or not isinstance(tokenisers.source, HfTokeniser):
            return {}
        before, after = tokenisers.source.find_template()
        ends, suffix = after[:1], after[1:]
        if ends != [vocabularies.source.eos] or len(before) + len(suffix) > 1:
            raise UserError(
                f"{self.where}: post_processor: a text must have EOS after it, and one language before it or after "
                "EOS; correct it"
            )
        languages = {"encoder_prefix_id": before, "encoder_suffix_id": suffix}
        return {key: vocabularies.source.headwise_ids[ids[0]] for key, ids in languages.items() if ids}


class HfPegasusConfig(HfPreNormConfig):
    model_type: Literal["pegasus"] = "pegasus"
    pad_token_id: TokenId = 0
    eos_token_id: TokenId = 1
    decoder_start_token_id: TokenId = 0
    normalize_embedding: Literal[False] = False
    static_position_embeddings: bool = True  # as in Marian

    def to_settings(self, task: str, names: Collection[str]) -> dict[str, Any]:
        return super().to_settings(task, names) | {"positions": choose_positions(self, names)}

    @classmethod
    def from_model_config(cls, config: Any, vocab: int) -> Self:
        return cls.model_validate(dict(super().from_model_config(config, vocab)) | describe_positions(config.positions))


MBART = Architecture(
    hf_config=HfMBartConfig,
    config=TransformerConfig,
    classes={"MBartForConditionalGeneration": "transduce"},
    name_map={**BART.name_map, "{side}.stack.final": "model.{side}.layer_norm"},
    base_prefix="model.",
    ignored=BART.ignored,
    special_names={"bos": "decoder_start"},
    extra_special_ids={"forced_eos": "eos"},
    read_tokeniser_files=MBartTokeniserFiles.read,
)
PEGASUS = Architecture(
    hf_config=HfPegasusConfig,
    config=TransformerConfig,
    classes={"PegasusForConditionalGeneration": "transduce"},
    name_map={name: value for name, value in MBART.name_map.items() if "embed.norm" not in name},
    base_prefix="model.",
    ignored={**BART.ignored, **SINUSOIDS},
    find_computed=find_computed_positions,
    special_names={"bos": "decoder_start"},
    extra_special_ids={"forced_eos": "eos"},
)
