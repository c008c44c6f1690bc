"""Completion: the most probable ends of a word that was begun, by any language model.

    P(word | text before, first letters) = sum over tokenisations of the word P(tokens, end of word) / P(first letters)

A word may be one token (words), a token a letter, or any of several sequences of pieces (BPE). All are one search:
sequences that agree with the letters given are followed by beam until something that belongs to no word comes next.

Letters: K beams, V vocabulary.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from headwise.blocks.evaluation import eval_mode
from headwise.decode.config import DecodeConfig
from headwise.decode.generator import Generator, Request, Stepper
from headwise.text import UNK
from headwise.text.base import Tokeniser
from headwise.text.hf import HfTokeniser
from headwise.text.subword import CHAR_TO_BYTE, Subword
from headwise.text.vocabulary import Bytes, Words

LAST_WORD = re.compile(r"[\w'’-]*$")
LAST_RUN = re.compile(r"\S*$")
ENOUGH = 1e-3  # of P(first letters): when words that may still be found share less than this, the search ends


@dataclass(frozen=True)
class Completion:
    """A whole word and its probability, given the text before it and its first letters."""

    word: str
    probability: float


@dataclass
class Search:
    """What the K rows have written of the word, and what was found. A row without a hypothesis has log P = -inf."""

    log_probs: Tensor  # (K,), in doubles: a long word's P would vanish in floats
    words: list[bytes]
    found: dict[bytes, float] = field(default_factory=lambda: defaultdict(float))
    begun: float = 0.0  # P(first letters), as far as it was found


class Completer:
    """Completes words with a language model; made once, it can be asked again and again.

    `beams` sequences are followed. One that is lost on the way is missing from the probability of its word.
    """

    def __init__(
        self,
        model: Generator,
        tokeniser: Tokeniser,
        device: torch.device | str = "cpu",
        beams: int = 64,
        longest: int = 32,
    ):
        self.model, self.tokeniser, self.device = model, tokeniser, torch.device(device)
        self.config = DecodeConfig(beams=beams, max_ratio=0, max_extra=longest, max_length=longest)
        self.pieces = pieces(tokeniser)
        self.whole = isinstance(tokeniser, Words)  # each token is a word, and whatever comes next ends it
        self.inside = self._where(not self.whole and wordy(piece) for piece in self.pieces)
        # Whether a space belongs to the first piece of the word after it, and stands before the first word too.
        self.spaced = any(piece.startswith(b" ") and wordy(piece[1:]) for piece in self.pieces)
        self.led = any(self.pieces[number].startswith(b" ") for number in tokeniser.encode("a")[:1])
        self.agreeing: dict[bytes, tuple[Tensor, Tensor]] = {}

    @torch.inference_mode()
    def __call__(self, text: str, count: int = 5) -> list[Completion]:
        """The `count` most probable words that the end of `text` may become; after a space, the next words."""
        before, letters = self._parted(text)
        request = Request([self.tokeniser.encode(before)], self.config, self.device)
        stepper = Stepper(self.model, request)
        rows = self.config.beams
        live = torch.full((rows,), -torch.inf, dtype=torch.float64, device=self.device)
        live[0] = 0  # all rows begin equal: only the first may branch
        search = Search(live, [b""] * rows)
        tokens = request.first(self.model)
        with eval_mode(self.model):
            state = self.model.start(request.opening(self.model), beams=rows)
            for step in range(stepper.longest):
                log_probs, state = stepper(tokens, state, step)
                kept, tokens = self._extend(search, log_probs + search.log_probs[:, None], letters)
                if float(search.log_probs.exp().sum()) <= ENOUGH * search.begun:
                    break
                state = state.select(kept)
        best = sorted(search.found.items(), key=lambda item: (-item[1], item[0]))[:count]
        return [Completion(word.decode(errors="replace").strip(), p / search.begun) for word, p in best]

    def _parted(self, text: str) -> tuple[str, bytes]:
        """The text before the last word, and the letters of it that are there."""
        text = self.tokeniser.normalise(text)
        place = (LAST_RUN if self.whole else LAST_WORD).search(text)
        assert place is not None
        before, letters = text[: place.start()], place[0]
        if self.spaced and (before.endswith(" ") or (self.led and not before)):
            before, letters = before[:-1], " " + letters
        return before, letters.encode()

    def _extend(self, search: Search, totals: Tensor, letters: bytes) -> tuple[Tensor, Tensor]:
        """Let words end or go on by a token, (K, V) log P; the rows that go on, (K,), and their tokens."""
        allowed = torch.zeros_like(totals, dtype=torch.bool)
        ends = totals.masked_fill(self.inside, -torch.inf).exp().sum(1).tolist()
        for row in (search.log_probs > -torch.inf).nonzero()[:, 0].tolist():
            word = search.words[row]
            if len(word) >= len(letters) and word.strip():
                search.found[word] += ends[row]
                allowed[row] = self.inside
            else:
                whole, part = self._agreeing(letters[len(word) :])
                search.begun += float(totals[row, whole].exp().sum())
                allowed[row] = whole | part
        flat = totals.masked_fill(~allowed, -torch.inf).flatten()  # (K, V) -> (K * V,)
        search.log_probs, chosen = flat.topk(len(totals))
        rows, tokens = chosen // totals.shape[1], chosen % totals.shape[1]
        grown = zip(rows.tolist(), tokens.tolist(), strict=True)
        search.words = [search.words[row] + self.pieces[token] for row, token in grown]
        return rows, tokens

    def _agreeing(self, letters: bytes) -> tuple[Tensor, Tensor]:
        """The tokens that hold all letters still due, and at least one; and those that hold only some: (V,) each."""
        if letters not in self.agreeing:
            space = b" " if letters.startswith(b" ") else b""
            rests = [piece.removeprefix(space) if piece.startswith(letters) else b"" for piece in self.pieces]
            whole = self._where((self.whole and rest != b"") or wordy(rest) for rest in rests)
            part = self._where(not self.whole and piece != b"" and letters.startswith(piece) for piece in self.pieces)
            self.agreeing[letters] = whole, part & ~whole
        return self.agreeing[letters]

    def _where(self, chosen: Iterable[bool]) -> Tensor:
        return torch.tensor(list(chosen), device=self.device)


def wordy(piece: bytes) -> bool:
    """Whether a piece can stand inside a word; a part of a character can.

    >>> [wordy(piece) for piece in (b"let", b"'s", b" a", b",", b"")]
    [True, True, False, False, False]
    """
    text = piece.decode(errors="replace")
    return bool(text) and all(character.isalnum() or character in "'’-_\ufffd" for character in text)


def pieces(tokeniser: Tokeniser) -> list[bytes]:
    """The bytes of each token; special tokens have none."""
    named = tokeniser.vocabulary[UNK + 1 :]
    if isinstance(tokeniser, Bytes):
        found = [bytes([byte]) for byte in range(256)]
    elif isinstance(tokeniser, Subword) or (isinstance(tokeniser, HfTokeniser) and tokeniser.byte_level):
        found = [bytes(CHAR_TO_BYTE.get(character, 0) for character in name) for name in named]
    elif isinstance(tokeniser, HfTokeniser):
        found = [name.replace("▁", " ").encode() for name in named]
    else:
        found = [name.encode() for name in named]
    return [b""] * (UNK + 1) + found
