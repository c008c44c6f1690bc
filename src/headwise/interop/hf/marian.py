"""Marian (Junczys-Dowmunt et al. 2018) of `transformers`: the Transformer of 2017 with an output bias.

Folders have SentencePiece models and `vocab.json` instead of `tokenizer.json`, and may have two vocabularies.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from headwise.blocks.positions.absolute import LearnedPositionsConfig, build_sinusoids
from headwise.config.base import Problems
from headwise.errors import UserError
from headwise.interop.folders import read_json
from headwise.interop.hf.architecture import (
    ACTIVATIONS,
    Architecture,
    HfActivation,
    HfTextConfig,
    TokenId,
    name_activation,
)
from headwise.interop.hf.bart import ALIASES, BART, TIED_WEIGHTS
from headwise.interop.hf.files import LazyStateDict
from headwise.interop.hf.text import TokeniserFiles, Vocabularies, write_json
from headwise.interop.hf.tokenizer_config import TOKENIZER_CONFIG
from headwise.interop.plain import ATTENTION, CROSS, MLP, read_plain_stack
from headwise.models.performer import LinearTransformerConfig, PerformerModelConfig
from headwise.models.synthesizer import SynthesizerConfig
from headwise.models.transformer import TransformerConfig
from headwise.text import SPECIALS
from headwise.text.hf import VocabularyMap
from headwise.text.marian import MarianTokeniser
from headwise.text.tokenisers import Tokenisers

Ids = dict[str, int]
POSITIONS = 1024  # default rows of the sinusoidal table in `transformers`
TABLE = "model.{}.embed_positions.weight"
ROUNDING = 2e-6  # of float32
SENTENCEPIECE_FILES = ("source.spm", "target.spm")


def choose_positions(hf_config: Any, names: Collection[str]) -> dict[str, Any]:
    """Sinusoids or, where the checkpoint has tables that differ from them, these; without the names of its tensors, the
    config says which."""
    if TABLE.format("encoder") in names if names else not hf_config.static_position_embeddings:
        return {"kind": "learned", "max_length": hf_config.max_position_embeddings}
    return {"kind": "sinusoid", "halves": True}


def describe_positions(positions: Any) -> dict[str, Any]:
    """The keys of positions in a `config.json`."""
    if not isinstance(positions, LearnedPositionsConfig):
        return {"max_position_embeddings": POSITIONS}
    return {"max_position_embeddings": positions.max_length, "static_position_embeddings": False}


class HfMarianConfig(HfTextConfig):
    aliases = ALIASES
    ignored_keys = ("add_bias_logits", "extra_pos_embeddings", "save_step")  # of BART, whose config it was derived from

    model_type: Literal["marian"] = "marian"
    is_encoder_decoder: Literal[True] = True  # type: ignore[assignment]
    vocab_size: int = Field(58101, gt=0)
    decoder_vocab_size: int | None = Field(None, gt=0)
    d_model: int = Field(1024, gt=0)
    encoder_layers: int = Field(12, gt=0)
    decoder_layers: int = Field(12, gt=0)
    encoder_attention_heads: int = Field(16, gt=0)
    decoder_attention_heads: int = Field(16, gt=0)
    encoder_ffn_dim: int = Field(4096, gt=0)
    decoder_ffn_dim: int = Field(4096, gt=0)
    activation_function: HfActivation = "gelu"
    dropout: float = 0.1
    attention_dropout: float = 0.0
    scale_embedding: bool = False
    share_encoder_decoder_embeddings: bool = True
    tie_word_embeddings: bool = True
    pad_token_id: TokenId = 58100
    eos_token_id: TokenId = 0
    decoder_start_token_id: TokenId = 58100
    max_position_embeddings: int = Field(POSITIONS, gt=0)
    # Keys of older files; Marian of `transformers` supports one value of each.
    normalize_before: Literal[False] = False
    normalize_embedding: Literal[False] = False
    add_final_layer_norm: Literal[False] = False
    static_position_embeddings: bool = True  # read here alone: false says that the checkpoint has tables of its own
    do_blenderbot_90_layernorm: Literal[False] = False

    @model_validator(mode="after")
    def _check_shared_size(self) -> Self:
        shared = self.tie_word_embeddings and self.share_encoder_decoder_embeddings
        if shared and self.decoder_vocab_size not in (None, self.vocab_size):
            raise Problems([(("decoder_vocab_size",), f"one table for both sides has vocab_size {self.vocab_size}")])
        return self

    @property
    def context(self) -> int:
        return self.max_position_embeddings

    def tied_weights(self, class_name: str) -> dict[str, str]:
        """Source and target embeddings are shared only where `tie_word_embeddings` is true."""
        if not self.tie_word_embeddings:
            return {}
        if self.share_encoder_decoder_embeddings:
            return TIED_WEIGHTS
        return {"lm_head.weight": "model.decoder.embed_tokens.weight"}

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
            "positions": choose_positions(self, names),
            "dropout": self.dropout,
            "attention_dropout": self.attention_dropout,
            "scale_embeddings": self.scale_embedding,
            "output_bias": True,
        }

    @classmethod
    def from_model_config(cls, config: Any, vocab: int) -> Self:
        encoder, decoder = read_plain_stack(config, "encoder"), read_plain_stack(config, "decoder")
        data = {
            "vocab_size": vocab,
            "d_model": config.width,
            "encoder_layers": encoder.depth,
            "decoder_layers": decoder.depth,
            **describe_positions(config.positions),
            "encoder_attention_heads": encoder.heads,
            "decoder_attention_heads": decoder.heads,
            "encoder_ffn_dim": encoder.hidden,
            "decoder_ffn_dim": decoder.hidden,
            "activation_function": name_activation(config),
            "dropout": config.dropout,
            "attention_dropout": config.attention_dropout,
            "scale_embedding": config.scale_embeddings,
            "share_encoder_decoder_embeddings": config.tie in ("auto", "all", "inputs"),
            "tie_word_embeddings": config.tie in ("auto", "all", "target"),
        }
        return cls.model_validate(data)


@dataclass(frozen=True)
class MarianTokeniserFiles(TokeniserFiles):
    """The contents of a Marian folder's tokeniser files."""

    source_ids: Ids | None = None  # piece -> Marian's id
    target_ids: Ids | None = None
    models: tuple[bytes, ...] = ()  # SentencePiece

    @classmethod
    def read(cls, folder: Path, config: Mapping[str, Any]) -> Self:
        path, target_path = folder / "vocab.json", folder / "target_vocab.json"
        source = read_ids(path) if path.is_file() else None
        target = read_ids(target_path) if target_path.is_file() else source
        files = [folder / name for name in SENTENCEPIECE_FILES if (folder / name).is_file()]
        models = tuple(file.read_bytes() for file in files)
        if source is not None and len(models) == len(SENTENCEPIECE_FILES):  # MarianTokenizer reads no tokenizer.json
            return cls(str(path), None, None, source, target, models)
        base = TokeniserFiles.read(folder, config)
        return cls(base.where, base.tokenizer, base.native, source, target, models)

    def build_vocabularies(
        self, architecture: Architecture, hf_config: Any, config: Mapping[str, Any], labels: Collection[str] = ()
    ) -> Vocabularies:
        """The special tokens of `vocab.json` take precedence over those of `config.json`."""
        pad, eos, start = (self.find_special_id(name, config) for name in ("pad", "eos", "decoder_start"))
        size = hf_config.decoder_vocab_size or hf_config.vocab_size
        shared = hf_config.share_encoder_decoder_embeddings
        target_ids = (self.source_ids if shared else self.target_ids) or {}
        unk = self.find_special_id("unk", config)

        def build_map(vocab: int, ids: Ids, start: int | None) -> VocabularyMap:
            return VocabularyMap(vocab, ids.get("<pad>", pad), start, ids.get("</s>", eos), ids.get("<unk>", unk))

        target = build_map(size, target_ids, start)
        if size == hf_config.vocab_size and (shared or self.source_ids is self.target_ids):
            return Vocabularies(target, target)
        # The encoder reads no BOS, but its row must not be that of a word.
        bos = self.source_ids.get("<s>", self.source_ids.get("<pad>", pad)) if self.source_ids else start
        return Vocabularies(build_map(hf_config.vocab_size, self.source_ids or {}, bos), target)

    def build_tokenisers(self, vocabularies: Vocabularies, labels: list[str], task: str) -> Tokenisers | None:
        if self.source_ids is None or self.target_ids is None or len(self.models) < len(SENTENCEPIECE_FILES):
            return super().build_tokenisers(vocabularies, labels, task)
        shared = vocabularies.target is vocabularies.source
        pieces = (self.source_ids, self.source_ids if shared else self.target_ids)
        sides = zip(self.models, pieces, vocabularies, strict=True)
        return Tokenisers(*(MarianTokeniser(model, order_pieces(ids, side.hf_ids)) for model, ids, side in sides))


def write_tokeniser_files(tokenisers: Tokenisers, folder: Path) -> bool:
    """Write the files of `MarianTokenizer`, if the tokenisers are Marian's."""
    source, target = tokenisers.source, tokenisers.target
    if not (isinstance(source, MarianTokeniser) and isinstance(target, MarianTokeniser)):
        return False
    separate = source.vocabulary != target.vocabulary
    for name, model in zip(SENTENCEPIECE_FILES, (source.model, target.model), strict=True):
        (folder / name).write_bytes(model)
    for name, side in {"vocab.json": source, "target_vocab.json": target}.items():
        if side is source or separate:
            write_json(folder / name, {piece: number for number, piece in enumerate(side.vocabulary)})
    write_json(folder / TOKENIZER_CONFIG, {"tokenizer_class": "MarianTokenizer", "separate_vocabs": separate})
    return True


def find_computed_positions(weights: LazyStateDict) -> Collection[str]:
    """The stored position tables, if all are the sinusoids that are computed here. Other ones, such as those rounded to
    half precision, are the position embedding of the model, as in `transformers`."""
    stored = [name for name in map(TABLE.format, ("encoder", "decoder")) if name in weights.readers]
    if all(are_sinusoids(weights[name]) for name in stored):
        return stored
    if len(stored) == 1:
        raise UserError(
            f"{weights.where}: {stored[0]} is no table of sinusoids, and the other side has none; save the whole state "
            "dict of the model with safetensors"
        )
    return ()


def are_sinusoids(table: Tensor) -> bool:
    if table.dim() != 2:
        return False
    expected = build_sinusoids(torch.arange(len(table)), table.shape[1], halves=True)
    return float((table.double() - expected).abs().max()) <= ROUNDING


SINUSOIDS = {r"model\.(encoder|decoder)\.embed_positions\.weight": "sinusoids, which are computed"}
MARIAN = Architecture(
    hf_config=HfMarianConfig,
    config=TransformerConfig,
    relatives=(
        PerformerModelConfig,
        LinearTransformerConfig,
        SynthesizerConfig,
    ),
    classes={"MarianMTModel": "transduce"},
    name_map={name: value for name, value in BART.name_map.items() if "embed.norm" not in name},
    base_prefix="model.",
    ignored={**BART.ignored, **SINUSOIDS},
    find_computed=find_computed_positions,
    special_names={"bos": "decoder_start"},
    extra_special_ids={"bos": "bos", "forced_eos": "eos"},
    read_tokeniser_files=MarianTokeniserFiles.read,
    write_tokeniser_files=write_tokeniser_files,
)


def read_ids(path: Path) -> dict[str, int]:
    """`vocab.json`: piece -> Marian's id."""
    ids = read_json(path)
    if any(type(number) is not int for number in ids.values()):
        raise UserError(f"{path}: must map pieces to ids; fetch it again")
    missing = [token for token in ("</s>", "<unk>") if token not in ids]
    if missing:
        raise UserError(f"{path}: has no {missing[0]}; it is no vocabulary of Marian")
    return ids


def order_pieces(ids: dict[str, int], order: Sequence[int]) -> list[str]:
    """Marian's pieces in the order of Headwise ids. A row without a usable piece is named by its number."""
    pieces = {number: piece for piece, number in ids.items() if piece not in SPECIALS}
    return [*SPECIALS, *(pieces.get(row, f"<{row}>") for row in order[len(SPECIALS) :])]
