"""Checks of input texts: their length, and tokens that are not in the vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headwise.errors import UserError
from headwise.studio.limits import MAX_TOKENS
from headwise.text import UNK

if TYPE_CHECKING:
    from headwise.inference.trained_model import TrainedModel
    from headwise.text.base import Tokeniser


def get_input_tokeniser(trained: TrainedModel) -> Tokeniser:
    """The tokeniser of the input text: a language model's prompt is on the target side."""
    tokenisers = trained.tokenisers
    return tokenisers.target if getattr(trained.model, "continues_prompt", False) else tokenisers.source


def encode_checked(tokeniser: Tokeniser, text: str, name: str = "text") -> list[int]:
    """Encode a text and refuse one that is too long: its maps would fill the memory."""
    ids = tokeniser.encode(text)
    if len(ids) > MAX_TOKENS:
        raise UserError(f"this {name} has {len(ids):,} tokens, and at most {MAX_TOKENS:,} are allowed here; shorten it")
    return ids


def report_unknown(tokeniser: Tokeniser, text: str) -> str:
    """A note on the tokens of a text that are not in the vocabulary; empty if there are none."""
    ids = tokeniser.encode(text)
    count = ids.count(UNK)
    verb = "is" if count == 1 else "are"
    return f"{count:,} of these {len(ids):,} tokens {verb} not in the vocabulary: <unk>." if count else ""


def keep_known_sentences(trained: TrainedModel, sentences: Sequence[str]) -> list[str]:
    """The sentences whose tokens are all in the vocabulary of a run."""
    from headwise.vision.pixels import Pixels

    tokeniser = trained.tokenisers.source
    if isinstance(tokeniser, Pixels):
        return []
    return [text for text in sentences if UNK not in tokeniser.encode(text)]
