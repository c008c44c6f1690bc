"""Masked language modelling and next sentence prediction (Devlin et al. 2019, section 3.1).

Of n tokens round(share * n), at least one, are to be predicted: 80 % of them become the mask token, 10 % a random
token, and 10 % stay. In half of the pairs the second text is the continuation, in the others it is from another
document.

DISCREPANCY: BERT masks its corpus once, here masks are drawn for every epoch (dynamic masking: Liu et al. 2019). It
cuts pairs between sentences; here a text is cut between any two tokens.

Letters: B rows, T positions, N tokens to be predicted.
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

MASKED, REPLACED = 0.8, 0.1  # shares of the tokens to be predicted; the others stay


@dataclass(frozen=True)
class MaskedBatch:
    """A padded batch of texts that end with EOS, or of pairs of them."""

    ids: Tensor  # (B, T)
    labels: Tensor  # (B, T) the tokens to be predicted; PAD elsewhere
    # (N,) where these are among the B * T: to look for them in the labels would be a wait for the device
    positions: Tensor
    next_sentence_labels: Tensor | None = (
        None  # (B,) 0: the second text follows the first; 1: is random; 2: precedes it
    )

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def tokens(self) -> int:
        """The number of input tokens; synchronises with the device, so read it before `to`."""
        return int((self.ids != PAD).sum())

    @classmethod
    def of(cls, ids: Tensor, labels: Tensor, next_sentence_labels: Tensor | None = None) -> MaskedBatch:
        """A batch on the host, whose positions are looked for in the labels."""
        return cls(ids, labels, (labels != PAD).flatten().nonzero()[:, 0], next_sentence_labels)

    def take_rows(self, rows: slice) -> MaskedBatch:
        following = None if self.next_sentence_labels is None else self.next_sentence_labels[rows]
        return MaskedBatch.of(self.ids[rows], self.labels[rows], following)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> MaskedBatch:
        tensors = {name: tensor for name, tensor in vars(self).items() if tensor is not None}
        return MaskedBatch(**{name: tensor.to(device, non_blocking=non_blocking) for name, tensor in tensors.items()})


class MaskedBlocks(DenoisingBlocks[MaskedBatch]):
    """Masked texts or pairs of at most `context` tokens, the class token and EOS included. `mask` is the id of the mask
    token; the ids of all other tokens are smaller."""

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
        next_sentence_labels = None
        if self.pairs:
            rows, pair_labels = self.build_pairs(starts, random)
            next_sentence_labels = torch.from_numpy(pair_labels.astype(np.int64))
        else:
            rows = [np.append(text, EOS) for text in self.read_texts(starts, self.context)]
        ids = pad_sequence([torch.from_numpy(row) for row in rows], batch_first=True, padding_value=PAD)
        masked, labels = self.add_noise(ids.numpy(), random)
        return MaskedBatch.of(torch.from_numpy(masked), torch.from_numpy(labels), next_sentence_labels)

    def add_noise(self, ids: np.ndarray, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Corrupted ids, and the tokens to be predicted; (B, T) each."""
        return mask_tokens(ids, self.mask, self.share, random)

    def build_pairs(self, starts: np.ndarray, random: np.random.Generator) -> tuple[list[np.ndarray], np.ndarray]:
        """`A EOS B EOS` from each block, and whether B is a random text instead of the continuation of A."""
        texts, sizes = self.read_texts(starts, self.context), self._measure_blocks(starts)
        cuts = random.integers(1, np.maximum(sizes, 2))
        is_random = (random.random(len(starts)) < 0.5) | (cuts == sizes)  # a single token has no continuation
        # As long as the continuation, so that the length does not reveal the label.
        others = self.sample_other_texts(starts, np.maximum(sizes - cuts, 1), random)
        rows = [
            np.concatenate([text[:cut], [EOS], other if replace else text[cut:], [EOS]])
            for text, cut, other, replace in zip(texts, cuts, others, is_random, strict=True)
        ]
        return rows, is_random

    def sample_other_texts(
        self, starts: np.ndarray, sizes: np.ndarray, random: np.random.Generator
    ) -> list[np.ndarray]:
        """Texts of these sizes from random positions of other documents; of the same one if there is no other."""
        documents = self.find_documents(starts)
        begins, ends = self.bounds[documents], self.bounds[documents + 1]
        excluded = np.where(ends - begins < len(self), ends - begins, 0)
        positions = random.integers(0, len(self) - excluded)
        positions += np.where(positions >= begins, excluded, 0)
        # Near the end of a document, start earlier, so that there are enough tokens.
        lacking = np.maximum(sizes - self._count_remaining(positions), 0)
        positions = np.maximum(positions - lacking, self.bounds[self.find_documents(positions)])
        return self.read_texts(positions, sizes)


def mask_tokens(ids: np.ndarray, mask: int, share: float, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Masked ids, and labels that are PAD where nothing is predicted; (B, T) each. Special tokens are not masked."""
    maskable = ids > EOS
    count = np.maximum(np.rint(share * maskable.sum(1, keepdims=True)), 1)
    ranks = np.where(maskable, random.random(ids.shape), 1.0).argsort(1).argsort(1)
    predicted = maskable & (ranks < count)
    draws = random.random(ids.shape)
    random_ids = random.integers(UNK + 1, mask, ids.shape)
    corrupted = np.where(draws < MASKED, mask, np.where(draws < MASKED + REPLACED, random_ids, ids))
    return np.where(predicted, corrupted, ids), np.where(predicted, ids, PAD)
