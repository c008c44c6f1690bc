"""Collation: tokenised pairs -> padded tensors."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Protocol, Self, TypeVar, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from headwise.data.examples import Examples
from headwise.text import BOS, EOS, PAD

Batch = TypeVar("Batch")


@dataclass(frozen=True)
class PairBatch:
    """A padded batch of pairs. B rows, S source and T target positions."""

    source: Tensor  # (B, S)  tokens EOS
    target_in: Tensor  # (B, T)  BOS tokens
    target_out: Tensor  # (B, T)  tokens EOS
    ids: Tensor  # (B,)  indices of the examples

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def tokens(self) -> int:
        """The number of target tokens; synchronises with the device, so read it before `to`."""
        return int((self.target_out != PAD).sum())

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Self:
        tensors = (getattr(self, field.name) for field in fields(self))
        return type(self)(*(tensor.to(device, non_blocking=non_blocking) for tensor in tensors))


def collate(examples: Examples, indices: np.ndarray) -> PairBatch:
    """Data collator: pad the examples with these indices into a batch, in this order.

    >>> batch = collate(Examples.from_rows([([4, 5], [6]), ([7], [8, 9])]), np.array([0, 1]))
    >>> batch.source.tolist(), batch.target_in.tolist(), batch.target_out.tolist()
    ([[4, 5, 2], [7, 2, 0]], [[1, 6, 0], [1, 8, 9]], [[6, 2, 0], [8, 9, 2]])
    """
    source, source_lengths = _pad_rows(examples, 2 * indices)
    target, target_lengths = _pad_rows(examples, 2 * indices + 1)
    start = np.full((len(indices), 1), BOS)
    target_in = np.concatenate([start, target[:, :-1]], axis=1)  # (B, 1) + (B, T - 1) -> (B, T)
    rows = np.arange(len(indices))
    source[rows, source_lengths] = EOS
    target[rows, target_lengths] = EOS
    arrays = (source, target_in, target, indices.astype(np.int64))
    return PairBatch(*map(torch.from_numpy, arrays))


@runtime_checkable
class HasRows(Protocol):
    """A batch, or a field of one, that knows how to take some of its rows."""

    def take_rows(self, rows: slice) -> Self: ...


def take_rows(batch: Batch, rows: slice) -> Batch:
    """Some rows of a batch: a dataclass of tensors (B, ...), None, and objects that know how, or such an object.

    >>> batch = collate(Examples.from_rows([([4, 5], [6]), ([7], [8, 9])]), np.array([0, 1]))
    >>> take_rows(batch, slice(1, None)).source.tolist()
    [[7, 2, 0]]
    """

    if isinstance(batch, HasRows):
        return batch.take_rows(rows)

    def take(value: Any) -> Any:
        if value is None or isinstance(value, Tensor):
            return None if value is None else value[rows]
        return value.take_rows(rows)

    return replace(batch, **{field.name: take(getattr(batch, field.name)) for field in fields(batch)})  # type: ignore


def _pad_rows(examples: Examples, sides: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Tokens padded to one position more than the longest, which leaves room for EOS; and the lengths."""
    starts = examples.bounds[sides]
    lengths = examples.bounds[sides + 1] - starts
    positions = np.arange(lengths.max(initial=0) + 1)
    real = positions < lengths[:, None]  # (B, 1) and (L,) -> (B, L)
    rows = np.full(real.shape, PAD, np.int64)
    rows[real] = examples.tokens[(starts[:, None] + positions)[real]]
    return rows, lengths
