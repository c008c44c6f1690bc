"""The prefix cache: decoding states after prompts that may come again, least recently used first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from hashlib import blake2b
from typing import Any, NamedTuple

import torch

from headwise.decode.generator import Source

SHORTEST = 16  # tokens; reading fewer again costs less than a copy of their state


class Prefix(NamedTuple):
    """A prompt that was read before, and how many of its tokens are those of another prompt."""

    key: Hashable
    state: Any
    length: int


class PrefixCache:
    """The prefix cache: states of one row by what they have read. A language model may go on from a common prefix of
    two prompts, an encoder-decoder from an equal source."""

    def __init__(self, max_tokens: int):
        self.max_tokens = max_tokens
        self.tokens = 0
        self.hits = 0
        self.reused_tokens = 0
        self.states: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()

    def find(self, key: Hashable) -> Prefix | None:
        """The state after an equal source or prompt."""
        return self._use(key, self.states[key][1]) if key in self.states else None

    def find_common(self, prompt: tuple[int, ...]) -> Prefix | None:
        """The state after the prompt with the longest common prefix, if that is worth a copy."""
        best, longest = None, SHORTEST - 1
        for key, (state, _) in self.states.items():
            assert isinstance(key, tuple)
            common = count_common(key, prompt)
            if common > longest and (common == len(key) or state.can_shorten):
                best, longest = key, common
        return None if best is None else self._use(best, longest)

    def _use(self, key: Hashable, length: int) -> Prefix:
        self.states.move_to_end(key)
        self.hits += 1
        self.reused_tokens += length
        return Prefix(key, self.states[key][0], length)

    def knows(self, key: Hashable) -> bool:
        """Whether there is a state after an equal source or prompt."""
        return key in self.states

    def wants(self, key: Hashable, tokens: int) -> bool:
        """Whether a state of so many tokens would be kept."""
        return SHORTEST <= tokens <= self.max_tokens and key not in self.states

    def forget(self, key: Hashable) -> None:
        """Drop a state, if it is there."""
        self.tokens -= self.states.pop(key, (None, 0))[1]

    def add(self, key: Hashable, state: Any, tokens: int) -> None:
        """Keep a state, and forget the least recently used ones."""
        self.states[key] = (state, tokens)
        self.tokens += tokens
        while self.tokens > self.max_tokens:
            _, (_, forgotten) = self.states.popitem(last=False)
            self.tokens -= forgotten


def count_common(first: tuple[int, ...], second: tuple[int, ...]) -> int:
    """The number of equal tokens at the beginning.

    >>> count_common((1, 5, 6), (1, 5, 7, 8))
    2
    """
    for index, (a, b) in enumerate(zip(first, second, strict=False)):
        if a != b:
            return index
    return min(len(first), len(second))


def make_source_key(source: Source) -> Hashable:
    """Equal for equal sources: their tokens, or a digest of an image."""
    if isinstance(source, torch.Tensor):
        pixels = source.contiguous().cpu().view(torch.uint8).numpy()
        return (str(source.dtype), tuple(source.shape), blake2b(pixels.tobytes(), digest_size=16).hexdigest())
    return tuple(source)
