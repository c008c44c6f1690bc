"""Marian (Junczys-Dowmunt et al. 2018) of `transformers`: the Transformer of 2017 with a bias on the logits.

Its folders have SentencePiece models and `vocab.json` instead of `tokenizer.json`, and may have two vocabularies.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import torch
from pydantic import Field, model_validator

from headwise.config.base import Problems
from headwise.errors import UserError
from headwise.interop.folders import read_json
from headwise.interop.hf.architecture import OURS, Architecture, Id, Plain, Theirs, activation_of
from headwise.interop.hf.bart import ALIASES, BART, TIED
from headwise.interop.hf.files import Weights
from headwise.interop.hf.text import SETTINGS, Texts, Vocabularies, write_json
from headwise.interop.plain import ATTENTION, CROSS, MLP, plain_stack
from headwise.models.performer import LinearTransformerConfig, PerformerModelConfig
from headwise.models.synthesizer import SynthesizerConfig
from headwise.models.transformer import TransformerConfig
from headwise.text import SPECIALS
from headwise.text.hf import Rows
from headwise.text.marian import MarianTokeniser
from headwise.text.tokenisers import Tokenisers

Ids = dict[str, int]
POSITIONS = 1024  # rows of the table that `transformers` makes for its sinusoids
MODELS = ("source.spm", "target.spm")


class TheirMarian(Theirs):
    aliases = ALIASES
    unread = ("add_bias_logits", "extra_pos_embeddings", "save_step")  # of BART, from which its code was made

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
    activation_function: Plain = "gelu"
    dropout: float = 0.1
    attention_dropout: float = 0.0
    scale_embedding: bool = False
    share_encoder_decoder_embeddings: bool = True
    tie_word_embeddings: bool = True
    pad_token_id: Id = 58100
    eos_token_id: Id = 0
    decoder_start_token_id: Id = 58100
    max_position_embeddings: int = Field(POSITIONS, gt=0)
    # Hugging Face's Marian has but one form of these; older files still say it.
    normalize_before: Literal[False] = False
    normalize_embedding: Literal[False] = False
    add_final_layer_norm: Literal[False] = False
    static_position_embeddings: Literal[True] = True
    do_blenderbot_90_layernorm: Literal[False] = False

    @model_validator(mode="after")
    def _one_size(self) -> Self:
        one = self.tie_word_embeddings and self.share_encoder_decoder_embeddings
        if one and self.decoder_vocab_size not in (None, self.vocab_size):
            raise Problems([(("decoder_vocab_size",), f"one table for both sides has vocab_size {self.vocab_size}")])
        return self

    @property
    def context(self) -> int:
        return self.max_position_embeddings

    def tied(self, name: str) -> dict[str, str]:
        """The source's and the target's table are one only where anything is tied at all."""
        if not self.tie_word_embeddings:
            return {}
        if self.share_encoder_decoder_embeddings:
            return TIED
        return {"lm_head.weight": "model.decoder.embed_tokens.weight"}

    def ours(self, task: str, names: Collection[str]) -> dict[str, Any]:
        heads, hidden = self.decoder_attention_heads, self.decoder_ffn_dim
        same = (heads, hidden) == (self.encoder_attention_heads, self.encoder_ffn_dim)
        own = (ATTENTION.replace(heads=heads), CROSS.replace(heads=heads), MLP.replace(hidden=hidden))
        return {
            "width": self.d_model,
            "heads": self.encoder_attention_heads,
            "hidden": self.encoder_ffn_dim,
            "activation": OURS[self.activation_function],
            "encoder": {"depth": self.encoder_layers},
            "decoder": {"depth": self.decoder_layers, "layers": () if same else (own,)},
            "positions": {"kind": "sinusoid", "halves": True},
            "dropout": self.dropout,
            "attention_dropout": self.attention_dropout,
            "scale_embeddings": self.scale_embedding,
            "output_bias": True,
        }

    @classmethod
    def of(cls, config: Any, vocab: int) -> Self:
        encoder, decoder = plain_stack(config, "encoder"), plain_stack(config, "decoder")
        data = {
            "vocab_size": vocab,
            "d_model": config.width,
            "encoder_layers": encoder.depth,
            "decoder_layers": decoder.depth,
            "encoder_attention_heads": encoder.heads,
            "decoder_attention_heads": decoder.heads,
            "encoder_ffn_dim": encoder.hidden,
            "decoder_ffn_dim": decoder.hidden,
            "activation_function": activation_of(config),
            "dropout": config.dropout,
            "attention_dropout": config.attention_dropout,
            "scale_embedding": config.scale_embeddings,
            "share_encoder_decoder_embeddings": config.tie in ("auto", "all", "inputs"),
            "tie_word_embeddings": config.tie in ("auto", "all", "target"),
        }
        return cls.model_validate(data)


@dataclass(frozen=True)
class MarianTexts(Texts):
    """The text files of a Marian folder."""

    source: Ids | None = None  # piece -> Marian's id
    target: Ids | None = None
    models: tuple[bytes, ...] = ()

    @classmethod
    def of(cls, folder: Path) -> MarianTexts:
        usual, path, own = Texts.of(folder), folder / "vocab.json", folder / "target_vocab.json"
        source = read_ids(path) if path.is_file() else None
        target = read_ids(own) if own.is_file() else source
        files = [folder / name for name in MODELS if (folder / name).is_file()]
        models = tuple(file.read_bytes() for file in files)
        return cls(usual.where, usual.engine, usual.names, usual.ours, source, target, models)

    def words(
        self, kind: Architecture, theirs: Any, config: Mapping[str, Any], labels: Collection[str] = ()
    ) -> Vocabularies:
        """A vocabulary's own special tokens count, the config's where there is none."""
        pad, eos, start = (self.mark(role, config) for role in ("pad", "eos", "decoder_start"))
        size = theirs.decoder_vocab_size or theirs.vocab_size
        shared = theirs.share_encoder_decoder_embeddings
        known = (self.source if shared else self.target) or {}
        unk = self.mark("unk", config)

        def rows(vocab: int, ids: Ids, start: int | None) -> Rows:
            return Rows(vocab, ids.get("<pad>", pad), start, ids.get("</s>", eos), ids.get("<unk>", unk))

        target = rows(size, known, start)
        if size == theirs.vocab_size and (shared or self.source is self.target):
            return Vocabularies(target, target)
        # Nothing starts on the source side: BOS must only not be a word.
        opening = self.source.get("<s>", self.source.get("<pad>", pad)) if self.source else start
        return Vocabularies(rows(theirs.vocab_size, self.source or {}, opening), target)

    def tokenisers(self, words: Vocabularies, labels: list[str], task: str) -> Tokenisers | None:
        if self.source is None or self.target is None or len(self.models) < len(MODELS):
            return super().tokenisers(words, labels, task)
        pieces = (self.source, self.source if words.target is words.source else self.target)
        sides = zip(self.models, pieces, words, strict=True)
        return Tokenisers(*(MarianTokeniser(model, arranged_names(ids, rows.order)) for model, ids, rows in sides))


def write_texts(tokenisers: Tokenisers, folder: Path) -> bool:
    """The files of Hugging Face's MarianTokenizer, where the kind is theirs."""
    source, target = tokenisers.source, tokenisers.target
    if not (isinstance(source, MarianTokeniser) and isinstance(target, MarianTokeniser)):
        return False
    separate = source.vocabulary != target.vocabulary
    for name, model in zip(MODELS, (source.model, target.model), strict=True):
        (folder / name).write_bytes(model)
    for name, side in {"vocab.json": source, "target_vocab.json": target}.items():
        if side is source or separate:
            write_json(folder / name, {piece: number for number, piece in enumerate(side.vocabulary)})
    write_json(folder / SETTINGS, {"tokenizer_class": "MarianTokenizer", "separate_vocabs": separate})
    return True


def check_sinusoids(weights: Weights) -> None:
    """Refuse stored positions that are not the sinusoids: `transformers` would use them, and ours are computed."""
    for side in ("encoder", "decoder"):
        name = f"model.{side}.embed_positions.weight"
        if name not in weights.readers:
            continue
        stored = weights[name]
        count, width = stored.shape
        rates = 10_000 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
        angles = torch.arange(count, dtype=torch.float64)[:, None] * rates  # (T, C/2)
        expected = torch.cat((angles.sin(), angles.cos()), 1)[:, :width]
        if (stored.double() - expected).abs().max() > max(1e-4, torch.finfo(stored.dtype).eps):
            raise UserError(f"{weights.where}: {name} is not made of sinusoids, which alone are supported")


MARIAN = Architecture(
    theirs=TheirMarian,
    config=TransformerConfig,
    relatives=(
        PerformerModelConfig,
        LinearTransformerConfig,
        SynthesizerConfig,
    ),
    classes={"MarianMTModel": "transduce"},
    keys={name: key for name, key in BART.keys.items() if "embed.positions" not in name and "embed.norm" not in name},
    stem="model.",
    ignored={**BART.ignored, r"model\.(encoder|decoder)\.embed_positions\.weight": "sinusoids, which are computed"},
    check=check_sinusoids,
    roles={"bos": "decoder_start"},
    also={"bos": "bos", "forced_eos": "eos"},
    texts=MarianTexts.of,
    write_texts=write_texts,
)


def read_ids(path: Path) -> dict[str, int]:
    """`vocab.json`: piece -> Marian's id."""
    ids = read_json(path)
    if any(type(number) is not int for number in ids.values()):
        raise UserError(f"{path}: must map pieces to ids; fetch it again")
    missing = [mark for mark in ("</s>", "<unk>") if mark not in ids]
    if missing:
        raise UserError(f"{path}: has no {missing[0]}; it is no vocabulary of Marian")
    return ids


def arranged_names(ids: dict[str, int], order: Sequence[int]) -> list[str]:
    """Marian's pieces by our ids. A row without a usable piece is named by its number."""
    pieces = {number: piece for piece, number in ids.items() if piece not in SPECIALS}
    return [*SPECIALS, *(pieces.get(row, f"<{row}>") for row in order[len(SPECIALS) :])]
