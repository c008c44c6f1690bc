"""Write Headwise tokenisers as a `tokenizer.json` that gives the same ids in `transformers`.

DISCREPANCY: in `transformers` a "</s>" in a text is the special token, here it is text.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headwise.text import BOS, EOS, SPECIALS, UNK
from headwise.text.base import Tokeniser
from headwise.text.subword import CHAR_TO_BYTE, Bpe, Subword, Unigram
from headwise.text.vocabulary import Bytes, Characters, Words

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SPACE = " "


def to_tokenizer_json(tokeniser: Tokeniser) -> dict[str, Any] | None:
    """The contents of `tokenizer.json`; None for a tokeniser that it cannot express, such as words in classes."""
    from tokenizers import AddedToken

    builders: dict[type[Tokeniser], Callable[[Any], Tokenizer]] = {
        Bpe: _build_subword,
        Unigram: _build_subword,
        Bytes: _build_bytes,
        Characters: _build_characters,
        Words: _build_words,
    }
    build = builders.get(type(tokeniser))
    if build is None or len(getattr(tokeniser, "unknown_ids", ())) > 1:
        return None
    engine = build(tokeniser)
    engine.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in SPECIALS])
    data: dict[str, Any] = json.loads(engine.to_str())
    return data


def add_post_processor(
    tokenizer_json: dict[str, Any], opens: bool, closes: bool, *special_tokens: str, first_type: int = 0
) -> dict[str, Any]:
    """Add the BOS and EOS tokens that models read before and after every text, and further special tokens; BOS has
    the token type `first_type`."""
    from tokenizers import AddedToken, Tokenizer, processors

    tokenizer = Tokenizer.from_str(json.dumps(tokenizer_json))
    start, end = f"{SPECIALS[BOS]}:{first_type} " * opens, f" {SPECIALS[EOS]}" * closes
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{start}$A{end}",
        pair=f"{start}$A{end} $B:1{end and end + ':1'}",
        special_tokens=[(SPECIALS[BOS], BOS), (SPECIALS[EOS], EOS)],
    )
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in special_tokens])
    data: dict[str, Any] = json.loads(tokenizer.to_str())
    return data


def _build_normalizer(tokeniser: Tokeniser, *last_steps: Any) -> Any:
    """Unicode form, lower case and the form again, as `Normaliser` does it."""
    from tokenizers import normalizers

    form = [getattr(normalizers, tokeniser.normalise.form)()] if tokeniser.normalise.form else []
    lower = [normalizers.Lowercase(), *form] if tokeniser.normalise.lower else []
    return normalizers.Sequence([*form, *lower, *last_steps])


def _number_pieces(tokeniser: Tokeniser) -> dict[str, int]:
    return {piece: number for number, piece in enumerate(tokeniser.vocabulary)}


def _build_subword(tokeniser: Subword) -> Tokenizer:
    """The tokeniser's own engine with four special tokens in front."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

    model_json = json.loads(tokeniser.engine.to_str())["model"]
    if model_json["type"] == "BPE":
        model: Any = models.BPE(_number_pieces(tokeniser), [tuple(merge) for merge in model_json["merges"]])
    else:
        lowest = min(score for _, score in model_json["vocab"])
        specials = [(name, lowest - 100.0) for name in SPECIALS]
        model = models.Unigram([*specials, *map(tuple, model_json["vocab"])], UNK, False)
    engine = Tokenizer(model)
    engine.normalizer = _build_normalizer(tokeniser, normalizers.Prepend(SPACE))
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    engine.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(SPACE, 1, 0)])
    return engine


def _build_bytes(tokeniser: Bytes) -> Tokenizer:
    """Byte-level BPE without merges."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    letters = {byte + len(SPECIALS): letter for letter, byte in CHAR_TO_BYTE.items()}
    vocabulary = {letters.get(number, name): number for number, name in enumerate(tokeniser.vocabulary)}
    engine = Tokenizer(models.BPE(vocabulary, []))
    engine.normalizer = _build_normalizer(tokeniser)
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    engine.decoder = decoders.ByteLevel()
    return engine


def _build_characters(tokeniser: Characters) -> Tokenizer:
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    engine = Tokenizer(models.WordLevel(_number_pieces(tokeniser), unk_token=SPECIALS[UNK]))
    engine.normalizer = _build_normalizer(tokeniser)
    engine.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    engine.decoder = decoders.Fuse()
    return engine


def _build_words(tokeniser: Words) -> Tokenizer:
    from tokenizers import Tokenizer, models, pre_tokenizers

    engine = Tokenizer(models.WordLevel(_number_pieces(tokeniser), unk_token=SPECIALS[UNK]))
    engine.normalizer = _build_normalizer(tokeniser)
    engine.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return engine
