"""The text that follows a prompt: whole, or piece by piece as it grows, and cut before a stop string."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from headwise.text.base import Tokeniser

UNFINISHED = "\ufffd"  # what the first bytes of a character are decoded to


def decode_continuation(
    tokeniser: Tokeniser, prompt: Sequence[int], ids: Sequence[int], stop: Sequence[str] = ()
) -> str:
    """The text of ids after those of a prompt; it may depend on it, as a space between two words does."""
    return cut(tokeniser.decode([*prompt, *ids])[len(tokeniser.decode(prompt)) :], stop)


def cut(text: str, stop: Sequence[str]) -> str:
    """What stands before the first stop string.

    >>> cut("one. two; three", [";", ". "])
    'one'
    """
    places = (text.find(each) for each in stop)
    return text[: min((place for place in places if place >= 0), default=len(text))]


def stream_text(
    tokeniser: Tokeniser, prompt: Sequence[int], tokens: Iterable[int], stop: Sequence[str] = ()
) -> Iterator[str]:
    """The same text in pieces, as soon as they are certain: the bytes of a character come together, and what may be
    the beginning of a stop string waits for what follows. After a stop string no further token is asked for."""
    ids = list(prompt[-1:])  # what was told before; its last token decides how the next one is joined to it
    known = len(tokeniser.decode(ids))
    held = ""
    for token in tokens:
        ids.append(token)
        text = tokeniser.decode(ids)
        if text.endswith(UNFINISHED):
            continue
        held += text[known:]
        ids = [token]
        known = len(tokeniser.decode(ids))
        if any(each in held for each in stop):
            break
        ready = len(held) - begun(held, stop)
        yield held[:ready]
        held = held[ready:]
    yield cut(held + tokeniser.decode(ids)[known:], stop)


def begun(text: str, stop: Sequence[str]) -> int:
    """How many of the last characters may be the beginning of a stop string.

    >>> begun("what <", ["<end>"]), begun("what <en", ["<end>", "n,"]), begun("what", ["<end>"])
    (1, 3, 0)
    """
    lengths = (length for each in stop for length in range(1, len(each)) if text.endswith(each[:length]))
    return max(lengths, default=0)
