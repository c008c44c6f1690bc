"""Tokenisers of ours as a `tokenizer.json`, which gives the same ids in `transformers`.

There a "</s>" in a text is the mark; everything else is equal.
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


def expressed(tokeniser: Tokeniser) -> dict[str, Any] | None:
    """The file's contents; None for a kind that it cannot hold, as words that are classed by their endings."""
    from tokenizers import AddedToken

    makers: dict[type[Tokeniser], Callable[[Any], Tokenizer]] = {
        Bpe: _subword, Unigram: _subword, Bytes: _bytes, Characters: _characters, Words: _words,
    }  # fmt: skip
    make = makers.get(type(tokeniser))
    if make is None or len(getattr(tokeniser, "unknown_ids", ())) > 1:
        return None
    engine = make(tokeniser)
    engine.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in SPECIALS])
    data: dict[str, Any] = json.loads(engine.to_str())
    return data


def framed(engine: dict[str, Any], opens: bool, closes: bool, *further: str) -> dict[str, Any]:
    """The same with the marks that our models read before and after every text, and with further special tokens."""
    from tokenizers import AddedToken, Tokenizer, processors

    tokenizer = Tokenizer.from_str(json.dumps(engine))
    start, end = f"{SPECIALS[BOS]} " * opens, f" {SPECIALS[EOS]}" * closes
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{start}$A{end}",
        pair=f"{start}$A{end} $B:1{end and end + ':1'}",
        special_tokens=[(SPECIALS[BOS], BOS), (SPECIALS[EOS], EOS)],
    )
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in further])
    data: dict[str, Any] = json.loads(tokenizer.to_str())
    return data


def _normaliser(tokeniser: Tokeniser, *further: Any) -> Any:
    """Form, lower case and the form again, as `Normaliser` does it."""
    from tokenizers import normalizers

    form = [getattr(normalizers, tokeniser.normalise.form)()] if tokeniser.normalise.form else []
    lower = [normalizers.Lowercase(), *form] if tokeniser.normalise.lower else []
    return normalizers.Sequence([*form, *lower, *further])


def _ids(tokeniser: Tokeniser) -> dict[str, int]:
    return {piece: number for number, piece in enumerate(tokeniser.vocabulary)}


def _subword(tokeniser: Subword) -> Tokenizer:
    """Its own engine with four more pieces in front."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

    own = json.loads(tokeniser.engine.to_str())["model"]
    if own["type"] == "BPE":
        model: Any = models.BPE(_ids(tokeniser), [tuple(merge) for merge in own["merges"]])
    else:
        lowest = min(score for _, score in own["vocab"])
        specials = [(name, lowest - 100.0) for name in SPECIALS]
        model = models.Unigram([*specials, *map(tuple, own["vocab"])], UNK, False)
    engine = Tokenizer(model)
    engine.normalizer = _normaliser(tokeniser, normalizers.Prepend(SPACE))
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    engine.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(SPACE, 1, 0)])
    return engine


def _bytes(tokeniser: Bytes) -> Tokenizer:
    """Pair encoding that knows no pairs."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    letters = {byte + len(SPECIALS): letter for letter, byte in CHAR_TO_BYTE.items()}
    vocabulary = {letters.get(number, name): number for number, name in enumerate(tokeniser.vocabulary)}
    engine = Tokenizer(models.BPE(vocabulary, []))
    engine.normalizer = _normaliser(tokeniser)
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    engine.decoder = decoders.ByteLevel()
    return engine


def _characters(tokeniser: Characters) -> Tokenizer:
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    engine = Tokenizer(models.WordLevel(_ids(tokeniser), unk_token=SPECIALS[UNK]))
    engine.normalizer = _normaliser(tokeniser)
    engine.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    engine.decoder = decoders.Fuse()
    return engine


def _words(tokeniser: Words) -> Tokenizer:
    from tokenizers import Tokenizer, models, pre_tokenizers

    engine = Tokenizer(models.WordLevel(_ids(tokeniser), unk_token=SPECIALS[UNK]))
    engine.normalizer = _normaliser(tokeniser)
    engine.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return engine
