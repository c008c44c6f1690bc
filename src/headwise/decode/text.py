"""Detokenisation of continuations: the text after a prompt, at once or streamed, cut before a stop string."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from headwise.text.base import Tokeniser

UNFINISHED = "\ufffd"  # replacement character: an incomplete UTF-8 sequence is decoded to it


def decode_continuation(
    tokeniser: Tokeniser, prompt: Sequence[int], ids: Sequence[int], stop: Sequence[str] = ()
) -> str:
    """The text of `ids` after a prompt, which can affect it: whether a space stands between them, for example."""
    return cut_at_stop(tokeniser.decode([*prompt, *ids])[len(tokeniser.decode(prompt)) :], stop)


def cut_at_stop(text: str, stop: Sequence[str]) -> str:
    """The text before its first stop string.

    >>> cut_at_stop("one. two; three", [";", ". "])
    'one'
    """
    starts = (text.find(string) for string in stop)
    return text[: min((start for start in starts if start >= 0), default=len(text))]


def stream_text(
    tokeniser: Tokeniser, prompt: Sequence[int], tokens: Iterable[int], stop: Sequence[str] = ()
) -> Iterator[str]:
    """Stream the text in pieces: bytes of one character stay together, and a possible prefix of a stop string is held
    back until the next token resolves it. After a stop string no further token is read."""
    ids = list(prompt[-1:])  # the last token already streamed decides how the next one is joined to it
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
        if any(string in held for string in stop):
            break
        ready = len(held) - match_stop_prefix(held, stop)
        yield held[:ready]
        held = held[ready:]
    yield cut_at_stop(held + tokeniser.decode(ids)[known:], stop)


def match_stop_prefix(text: str, stop: Sequence[str]) -> int:
    """The number of characters at the end of the text that are a prefix of a stop string.

    >>> [match_stop_prefix(text, ["<end>", "n,"]) for text in ("what <", "what <en", "what")]
    [1, 3, 0]
    """
    lengths = (size for string in stop for size in range(1, len(string)) if text.endswith(string[:size]))
    return max(lengths, default=0)
