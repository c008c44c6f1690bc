"""Texts before a model reads them: how long they may be, and what it does not know of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwise.errors import UserError
from headwise.studio.limits import MOST_TOKENS
from headwise.text import UNK

if TYPE_CHECKING:
    from headwise.inference.trained_model import TrainedModel
    from headwise.text.base import Tokeniser


def reads(loaded: TrainedModel) -> Tokeniser:
    """What cuts the text that a model is given: one that goes on with it has it on its own side."""
    sides = loaded.tokenisers
    return sides.target if getattr(loaded.model, "continues", False) else sides.source


def fitting(tokeniser: Tokeniser, text: str, name: str = "text") -> list[int]:
    """The tokens of a text; maps of more than these would fill the memory."""
    ids = tokeniser.encode(text)
    if len(ids) > MOST_TOKENS:
        raise UserError(f"this {name} has {len(ids):,} tokens, and here {MOST_TOKENS:,} are the most; shorten it")
    return ids


def remark(tokeniser: Tokeniser, text: str) -> str:
    """What is to be said of a text, or nothing."""
    ids = tokeniser.encode(text)
    count = ids.count(UNK)
    them = "one of them" if count == 1 else f"{count:,} of them"
    return f"Of these {len(ids):,} tokens the run does not know {them}: <unk>." if count else ""
