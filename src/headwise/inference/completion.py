"""Word completion: the most probable words with given first letters, by any language model.

    P(word | text before, first letters) = sum over tokenisations of the word P(tokens, end of word) / P(first letters)

A word is one token (words), a token per letter (characters), or any of several sequences of subwords (BPE). One beam
search serves all: it extends sequences that agree with the given letters until the next token is outside a word.

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
from headwise.decode.generator import Generator, NextTokenScorer, Request
from headwise.text import UNK
from headwise.text.base import Tokeniser
from headwise.text.hf import HfTokeniser
from headwise.text.subword import CHAR_TO_BYTE, Subword
from headwise.text.vocabulary import Bytes, Words

LAST_WORD = re.compile(r"[\w'’-]*$")
LAST_RUN = re.compile(r"\S*$")
MIN_REMAINING = 1e-3  # share of P(first letters) of unfinished words below which the search ends


@dataclass(frozen=True)
class Completion:
    """A word and its probability, given the text before it and its first letters."""

    word: str
    probability: float


@dataclass
class Search:
    """The prefixes of words in the K beams, and the probabilities of finished words. Empty beams have log P = -inf."""

    log_probs: Tensor  # (K,), float64: P of a long word would underflow in float32
    prefixes: list[bytes]
    words: dict[bytes, float] = field(default_factory=lambda: defaultdict(float))
    letters_prob: float = 0.0  # P(first letters), summed over the tokenisations found so far


class Completer:
    """Completes words with a language model; one object serves many texts.

    The beam search has `beams` beams. A tokenisation that it prunes is missing from the probability of its word.
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
        self.token_bytes = token_bytes(tokeniser)
        self.word_level = isinstance(tokeniser, Words)  # each token is a word, and any next token ends it
        self.in_word = self._to_mask(not self.word_level and is_word_piece(piece) for piece in self.token_bytes)
        # Whether the first token of a word includes the space before it, and whether a text begins with one, too.
        self.joins_space = any(piece.startswith(b" ") and is_word_piece(piece[1:]) for piece in self.token_bytes)
        self.adds_space = any(self.token_bytes[number].startswith(b" ") for number in tokeniser.encode("a")[:1])
        self.matches: dict[bytes, tuple[Tensor, Tensor]] = {}

    @torch.inference_mode()
    def __call__(self, text: str, count: int = 5) -> list[Completion]:
        """The `count` most probable completions of the last word of `text`; after a space, the next words."""
        before, letters = self._split_last_word(text)
        request = Request([self.tokeniser.encode(before)], self.config, self.device)
        scorer = NextTokenScorer(self.model, request)
        rows = self.config.beams
        live = torch.full((rows,), -torch.inf, dtype=torch.float64, device=self.device)
        live[0] = 0  # all beams start equal, so only the first one branches
        search = Search(live, [b""] * rows)
        tokens = request.build_first_tokens(self.model)
        with eval_mode(self.model):
            state = self.model.start(request.build_inputs(self.model), beams=rows)
            for _ in range(scorer.longest):
                log_probs, state = scorer(tokens, state)
                parents, tokens = self._extend(search, log_probs + search.log_probs[:, None], letters)
                if float(search.log_probs.exp().sum()) <= MIN_REMAINING * search.letters_prob:
                    break
                state = state.select(parents)
                scorer.extend(tokens)
        best = sorted(search.words.items(), key=lambda item: (-item[1], item[0]))[:count]
        return [Completion(word.decode(errors="replace").strip(), p / search.letters_prob) for word, p in best]

    def _split_last_word(self, text: str) -> tuple[str, bytes]:
        """The text before the last word, and the first letters of that word."""
        text = self.tokeniser.normalise(text)
        match = (LAST_RUN if self.word_level else LAST_WORD).search(text)
        assert match is not None
        before, letters = text[: match.start()], match[0]
        if self.joins_space and (before.endswith(" ") or (self.adds_space and not before)):
            before, letters = before[:-1], " " + letters
        return before, letters.encode()

    def _extend(self, search: Search, totals: Tensor, letters: bytes) -> tuple[Tensor, Tensor]:
        """End words or extend them by a token, given log P (K, V); returns parent rows and tokens."""
        allowed = torch.zeros_like(totals, dtype=torch.bool)
        ends = totals.masked_fill(self.in_word, -torch.inf).exp().sum(1).tolist()
        for row in (search.log_probs > -torch.inf).nonzero()[:, 0].tolist():
            prefix = search.prefixes[row]
            if len(prefix) >= len(letters) and prefix.strip():
                search.words[prefix] += ends[row]
                allowed[row] = self.in_word
            else:
                complete, partial = self._match_letters(letters[len(prefix) :])
                search.letters_prob += float(totals[row, complete].exp().sum())
                allowed[row] = complete | partial
        flat = totals.masked_fill(~allowed, -torch.inf).flatten()  # (K, V) -> (K * V,)
        search.log_probs, chosen = flat.topk(len(totals))
        rows, tokens = chosen // totals.shape[1], chosen % totals.shape[1]
        extensions = zip(rows.tolist(), tokens.tolist(), strict=True)
        search.prefixes = [search.prefixes[row] + self.token_bytes[token] for row, token in extensions]
        return rows, tokens

    def _match_letters(self, letters: bytes) -> tuple[Tensor, Tensor]:
        """Masks (V,) of the tokens that begin with all remaining letters, and of those that are a prefix of them."""
        if letters not in self.matches:
            space = b" " if letters.startswith(b" ") else b""
            rests = [piece.removeprefix(space) if piece.startswith(letters) else b"" for piece in self.token_bytes]
            complete = self._to_mask((self.word_level and rest != b"") or is_word_piece(rest) for rest in rests)
            partial = self._to_mask(
                not self.word_level and piece != b"" and letters.startswith(piece) for piece in self.token_bytes
            )
            self.matches[letters] = complete, partial & ~complete
        return self.matches[letters]

    def _to_mask(self, flags: Iterable[bool]) -> Tensor:
        return torch.tensor(list(flags), device=self.device)


def is_word_piece(piece: bytes) -> bool:
    """Whether a token is part of a word; incomplete UTF-8 sequences are.

    >>> [is_word_piece(piece) for piece in (b"let", b"'s", b" a", b",", b"")]
    [True, True, False, False, False]
    """
    text = piece.decode(errors="replace")
    return bool(text) and all(character.isalnum() or character in "'’-_\ufffd" for character in text)


def token_bytes(tokeniser: Tokeniser) -> list[bytes]:
    """The bytes of each token; special tokens have none."""
    names = tokeniser.vocabulary[UNK + 1 :]
    if isinstance(tokeniser, Bytes):
        table = [bytes([byte]) for byte in range(256)]
    elif isinstance(tokeniser, Subword) or (isinstance(tokeniser, HfTokeniser) and tokeniser.byte_level):
        table = [bytes(CHAR_TO_BYTE.get(character, 0) for character in name) for name in names]
    elif isinstance(tokeniser, HfTokeniser):
        table = [name.replace("▁", " ").encode() for name in names]
    else:
        table = [name.encode() for name in names]
    return [b""] * (UNK + 1) + table
