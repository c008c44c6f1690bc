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


class TextStreamer:
    """The text of tokens as they come: bytes of one character stay together, and a possible prefix of a stop string is
    held back until the next token resolves it."""

    def __init__(self, tokeniser: Tokeniser, prompt: Sequence[int], stop: Sequence[str] = ()):
        self.tokeniser, self.stop = tokeniser, stop
        self.ids = list(prompt[-1:])  # the last token already streamed decides how the next one is joined to it
        self.known = len(tokeniser.decode(self.ids))
        self.held = ""
        self.stopped = False  # whether a stop string has come

    def push(self, token: int) -> str:
        """The text that is certain with one token more."""
        if self.stopped:
            return ""
        self.ids.append(token)
        text = self.tokeniser.decode(self.ids)
        if text.endswith(UNFINISHED):
            return ""
        self.held += text[self.known :]
        self.ids = [token]
        self.known = len(self.tokeniser.decode(self.ids))
        self.stopped = any(string in self.held for string in self.stop)
        if self.stopped:
            return ""
        ready = len(self.held) - match_stop_prefix(self.held, self.stop)
        piece, self.held = self.held[:ready], self.held[ready:]
        return piece

    def finish(self) -> str:
        """What was held back, up to a stop string."""
        return cut_at_stop(self.held + self.tokeniser.decode(self.ids)[self.known :], self.stop)


def stream_text(
    tokeniser: Tokeniser, prompt: Sequence[int], tokens: Iterable[int], stop: Sequence[str] = ()
) -> Iterator[str]:
    """Stream the text in pieces. After a stop string no further token is read."""
    streamer = TextStreamer(tokeniser, prompt, stop)
    for token in tokens:
        piece = streamer.push(token)
        if streamer.stopped:
            break
        if piece:
            yield piece
    yield streamer.finish()


def match_stop_prefix(text: str, stop: Sequence[str]) -> int:
    """The number of characters at the end of the text that are a prefix of a stop string.

    >>> [match_stop_prefix(text, ["<end>", "n,"]) for text in ("what <", "what <en", "what")]
    [1, 3, 0]
    """
    lengths = (size for string in stop for size in range(1, len(string)) if text.endswith(string[:size]))
    return max(lengths, default=0)
