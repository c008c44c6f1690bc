"""Texts with hidden words, to be guessed from what stands on both sides of them (Devlin et al. 2019, section 3.1).

Of n words round(share * n), at least one, are to be guessed. Of these 80 % become the mask, 10 % a random word, and
10 % stay. In pairs, half of the second texts are those that follow, the others are taken from another document.

DISCREPANCY: BERT hides its words once and for all, here they are drawn anew in every epoch (as in Liu et al. 2019). It
cuts pairs between sentences; here a text is cut between any two tokens.

Letters: B rows, T positions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from headwise.data.denoising import DenoisingBlocks
from headwise.data.examples import Examples
from headwise.text import EOS, PAD, UNK

MASKED, REPLACED = 0.8, 0.1  # of the words to be guessed; the others are shown as they are


@dataclass(frozen=True)
class MaskedBatch:
    """A padded batch of texts, each with EOS behind it, or of pairs of them."""

    ids: Tensor  # (B, T)
    labels: Tensor  # (B, T) the words to be guessed; PAD elsewhere
    next_sentence_labels: Tensor | None = None  # (B,) 1 where the second text does not follow the first, else 0

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def tokens(self) -> int:
        """How many tokens are read; waits for the device, so ask before `to`."""
        return int((self.ids != PAD).sum())

    def to(self, device: torch.device | str, non_blocking: bool = False) -> MaskedBatch:
        tensors = (self.ids, self.labels, self.next_sentence_labels)
        return MaskedBatch(*(None if x is None else x.to(device, non_blocking=non_blocking) for x in tensors))  # type: ignore[arg-type]


class MaskedBlocks(DenoisingBlocks):
    """Texts or pairs of at most `context` tokens, the opening mark and the end tokens included. `mask` is the id that
    stands for what is hidden; all words have smaller ones."""

    def __init__(
        self,
        examples: Examples,
        context: int,
        mask: int,
        share: float = 0.15,
        pairs: bool = False,
        seed: int = 0,
        tokens_per_batch: int = 0,
        batch_size: int = 0,
    ):
        super().__init__(examples, context - (3 if pairs else 2), seed, tokens_per_batch, batch_size)
        self.mask, self.share, self.pairs = mask, share, pairs

    def corrupt(self, starts: np.ndarray, random: np.random.Generator) -> MaskedBatch:
        apart = None
        if self.pairs:
            rows, far = self.paired(starts, random)
            apart = torch.from_numpy(far.astype(np.int64))
        else:
            rows = [np.append(text, EOS) for text in self.texts(starts, self.context)]
        ids = pad_sequence([torch.from_numpy(row) for row in rows], batch_first=True, padding_value=PAD)
        shown, labels = mask_tokens(ids.numpy(), self.mask, self.share, random)
        return MaskedBatch(torch.from_numpy(shown), torch.from_numpy(labels), apart)

    def paired(self, starts: np.ndarray, random: np.random.Generator) -> tuple[list[np.ndarray], np.ndarray]:
        """`A EOS B EOS` from each block, and where B is not what follows A."""
        texts, sizes = self.texts(starts, self.context), self._sizes(starts)
        cuts = random.integers(1, np.maximum(sizes, 2))
        far = (random.random(len(starts)) < 0.5) | (cuts == sizes)  # nothing follows a single word
        # As long as what follows would be, so that lengths do not tell.
        others = self.elsewhere(starts, np.maximum(sizes - cuts, 1), random)
        rows = [
            np.concatenate([text[:cut], [EOS], other if strange else text[cut:], [EOS]])
            for text, cut, other, strange in zip(texts, cuts, others, far, strict=True)
        ]
        return rows, far

    def elsewhere(self, starts: np.ndarray, sizes: np.ndarray, random: np.random.Generator) -> list[np.ndarray]:
        """So many words from anywhere in other documents; where there is but one, from anywhere in it."""
        home = self.documents(starts)
        begins, ends = self.bounds[home], self.bounds[home + 1]
        barred = np.where(ends - begins < len(self), ends - begins, 0)
        places = random.integers(0, len(self) - barred)
        places += np.where(places >= begins, barred, 0)
        # Back from the end of a document, where words would be missing.
        places = np.maximum(places - np.maximum(sizes - self._left(places), 0), self.bounds[self.documents(places)])
        return self.texts(places, sizes)


def mask_tokens(ids: np.ndarray, mask: int, share: float, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """The ids as they are shown, and the words that are to be guessed, PAD elsewhere; (B, T) each. Marks stay."""
    words = ids > EOS
    count = np.maximum(np.rint(share * words.sum(1, keepdims=True)), 1)
    ranks = np.where(words, random.random(ids.shape), 1.0).argsort(1).argsort(1)
    chosen = words & (ranks < count)
    fate = random.random(ids.shape)
    strange = random.integers(UNK + 1, mask, ids.shape)
    spoilt = np.where(fate < MASKED, mask, np.where(fate < MASKED + REPLACED, strange, ids))
    return np.where(chosen, spoilt, ids), np.where(chosen, ids, PAD)
