"""Back-off n-gram language models.

    p(w | u) = p(u w) if u w is known, else backoff(u) p(w | u')

Letters: B texts, T positions, R rows, N grams of one order, V vocabulary. A context is the tensor of the indices of
its last 0, 1, ..., order - 1 tokens among the n-grams of that length; an unknown n-gram has the index N.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from headwise.blocks.losses import Loss
from headwise.text import BOS, EOS, PAD
from headwise.utils.notebook import HtmlTree

LAST_KEY = torch.iinfo(torch.int64).max


class ResizableBuffers(nn.Module):
    """A module whose buffers take the size of the loaded state dict: the number of n-grams is not known before."""

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *rest: Any) -> None:
        for name in self._buffers:
            if prefix + name in state:
                buffer = getattr(self, name)
                setattr(self, name, torch.empty_like(state[prefix + name], device=buffer.device))
        super()._load_from_state_dict(state, prefix, *rest)


class NgramTable(ResizableBuffers):
    """The n-grams of one order: sorted keys (N + 1,) with a sentinel at the end, log p (N + 1,), and the log back-off
    weight of each context, which is 0 for the unknown one."""

    keys: Tensor
    log_p: Tensor
    log_backoff: Tensor

    def __init__(self, keys: Tensor, log_p: Tensor, log_backoff: Tensor, vocab: int, persistent: bool):
        super().__init__()
        self.vocab = vocab
        end = keys.new_full((1,), LAST_KEY)
        zero = log_p.new_zeros(1)
        self.register_buffer("keys", torch.cat((keys, end)), persistent)
        self.register_buffer("log_p", torch.cat((log_p, zero)), persistent)
        self.register_buffer("log_backoff", torch.cat((log_backoff, zero)), persistent)

    @classmethod
    def empty(cls, vocab: int) -> NgramTable:
        """An empty table, to be loaded."""
        table = cls(torch.empty(0, dtype=torch.int64), torch.empty(0), torch.empty(0), vocab, persistent=True)
        for name, buffer in list(table.named_buffers()):
            table.register_buffer(name, buffer[:0])
        return table

    @property
    def unknown(self) -> int:
        return len(self.keys) - 1

    def find(self, contexts: Tensor, tokens: Tensor) -> Tensor:
        """The indices of the n-grams made of contexts (one order down) and tokens."""
        keys = contexts * self.vocab + tokens
        indices = torch.searchsorted(self.keys, keys)
        return torch.where(self.keys[indices] == keys, indices, self.unknown)

    def score(self, shorter: Tensor, contexts: Tensor, tokens: Tensor) -> Tensor:
        """log p of tokens; `shorter` is log p after the shorter contexts."""
        indices = self.find(contexts, tokens)
        return torch.where(indices < self.unknown, self.log_p[indices], shorter + self.log_backoff[contexts])

    def score_all(self, shorter: Tensor, contexts: Tensor) -> Tensor:
        """log p of every token: (R, V) and (R,) -> (R, V)."""
        rows = shorter + self.log_backoff[contexts].unsqueeze(1)
        first, end = torch.searchsorted(self.keys, torch.stack((contexts, contexts + 1)) * self.vocab)
        counts = end - first  # known tokens after each context; their keys are adjacent
        row = torch.repeat_interleave(counts)
        indices = torch.arange(len(row), device=row.device) + (first - counts.cumsum(0) + counts)[row]
        rows[row, self.keys[indices] % self.vocab] = self.log_p[indices]
        return rows


@dataclass(frozen=True)
class NgramState:
    """The decoding state: the context of each row, (R, order)."""

    contexts: Tensor

    def select(self, rows: Tensor) -> NgramState:
        return NgramState(self.contexts[rows])

    def join(self, other: NgramState) -> NgramState:
        return NgramState(torch.cat((self.contexts, other.contexts)))


class Backoff(HtmlTree, nn.Module):
    """A back-off language model: tables of n-grams by order from 1. Its logits are log-probabilities."""

    start_id, end_id, continues_prompt = BOS, EOS, True
    ragged, joins, unbounded, max_length = True, True, True, 0

    def __init__(self, tables: list[NgramTable], vocab: int):
        super().__init__()
        self.vocab = vocab
        self.tables = nn.ModuleList(tables)

    @property
    def order(self) -> int:
        return len(self.tables)

    @property
    def by_order(self) -> list[NgramTable]:
        return cast(list[NgramTable], list(self.tables))

    def forward(self, ids: Tensor, labels: Tensor | None = None, smoothing: float = 0.0) -> Tensor | Loss:
        """log p (B, T, V) of the token after each of (B, T); with labels (B, T) their loss instead, computed
        for the labels alone. Label smoothing has no effect."""
        contexts = self.find_contexts(ids)
        if labels is None:
            return self.score_all(contexts.flatten(0, 1)).unflatten(0, ids.shape)  # (B * T, V) -> (B, T, V)
        real = labels != PAD
        nll = -self.score(contexts, labels).where(real, 0).sum()
        return Loss(nll, nll, real.sum())

    def find_grams(self, ids: Tensor) -> list[Tensor]:
        """The indices of the n-grams of 1, 2, ... tokens that end at each of (B, T)."""
        grams: list[Tensor] = []
        contexts = torch.zeros_like(ids)  # the empty context
        for table in self.by_order:
            grams.append(table.find(contexts, ids))
            contexts = grams[-1].roll(1, dims=1)
            contexts[:, :1] = table.unknown  # no token before the row
        return grams

    def find_contexts(self, ids: Tensor) -> Tensor:
        """The context of the prefix up to each of (B, T): (B, T, order)."""
        return torch.stack((torch.zeros_like(ids), *self.find_grams(ids)[:-1]), dim=-1)

    def score(self, contexts: Tensor, tokens: Tensor) -> Tensor:
        """log p of tokens (...) after contexts (..., order)."""
        log_p = torch.zeros_like(tokens, dtype=self.by_order[0].log_p.dtype)
        for table, context in zip(self.by_order, contexts.unbind(-1), strict=True):
            log_p = table.score(log_p, context, tokens)
        return log_p

    def score_all(self, contexts: Tensor) -> Tensor:
        """log p of every token after contexts (R, order): (R, V)."""
        first, *longer = self.by_order
        log_p = first.log_p[: self.vocab].expand(len(contexts), -1)
        for table, context in zip(longer, contexts.unbind(-1)[1:], strict=True):
            log_p = table.score_all(log_p, context)
        return log_p

    def start(self, prompt: Tensor, beams: int = 1) -> NgramState:
        """Read the prompts (B, P), which begin with BOS or are empty; shorter ones may be padded on either side.
        `beams` rows for each."""
        if prompt.shape[1]:
            order = (prompt != PAD).sort(dim=1, stable=True)[
                1
            ]  # move padding to the left, where it is an unknown context
            contexts = self.find_contexts(prompt.gather(1, order)[:, -self.order :])[
                :, -1
            ]  # (B, T, order) -> (B, order)
        else:
            unknown = [0, *(table.unknown for table in self.by_order[:-1])]
            contexts = prompt.new_tensor(unknown).expand(len(prompt), -1)
        return NgramState(contexts.repeat_interleave(beams, dim=0))

    def step(self, tokens: Tensor, state: NgramState) -> tuple[Tensor, NgramState]:
        """One token for each row, (R,) -> log p of the next, (R, V)."""
        previous = state.contexts.unbind(-1)
        longer = [table.find(context, tokens) for table, context in zip(self.by_order[:-1], previous, strict=False)]
        contexts = torch.stack((torch.zeros_like(tokens), *longer), dim=-1)
        return self.score_all(contexts), NgramState(contexts)
