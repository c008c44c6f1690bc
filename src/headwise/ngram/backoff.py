"""Back-off language models: the longest known gram decides.

    p(w | u) = p(u w) if u w is known, else rest(u) p(w | u')

Letters: B texts, T positions, R rows, N grams of one order, V vocabulary. A context is the tensor of the numbers of
its last 0, 1, ..., order - 1 tokens among the grams of that length; a length that is unknown has the number N.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from headwise.blocks.heads import Loss
from headwise.text import BOS, EOS, PAD

LAST = torch.iinfo(torch.int64).max


class Arriving(nn.Module):
    """A module whose buffers get their size when they are loaded: how many grams there are is known when they come."""

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *rest: Any) -> None:
        for name in self._buffers:
            if prefix + name in state:
                own = getattr(self, name)
                setattr(self, name, torch.empty_like(state[prefix + name], device=own.device))
        super()._load_from_state_dict(state, prefix, *rest)


class NgramTable(Arriving):
    """The grams of one order: sorted keys (N + 1,) with a last one that nothing equals, log p (N + 1,), and log rest of
    each context, which is 0 for the unknown one."""

    keys: Tensor
    log_p: Tensor
    log_rest: Tensor

    def __init__(self, keys: Tensor, log_p: Tensor, log_rest: Tensor, vocab: int, persistent: bool):
        super().__init__()
        self.vocab = vocab
        end = keys.new_full((1,), LAST)
        nothing = log_p.new_zeros(1)
        self.register_buffer("keys", torch.cat((keys, end)), persistent)
        self.register_buffer("log_p", torch.cat((log_p, nothing)), persistent)
        self.register_buffer("log_rest", torch.cat((log_rest, nothing)), persistent)

    @classmethod
    def waiting(cls, vocab: int) -> NgramTable:
        """A table without contents, to be loaded."""
        table = cls(torch.empty(0, dtype=torch.int64), torch.empty(0), torch.empty(0), vocab, persistent=True)
        for name, held in list(table.named_buffers()):
            table.register_buffer(name, held[:0])
        return table

    @property
    def unknown(self) -> int:
        return len(self.keys) - 1

    def find(self, contexts: Tensor, tokens: Tensor) -> Tensor:
        """The numbers of contexts (one order down) with tokens after them."""
        keys = contexts * self.vocab + tokens
        places = torch.searchsorted(self.keys, keys)
        return torch.where(self.keys[places] == keys, places, self.unknown)

    def score(self, shorter: Tensor, contexts: Tensor, tokens: Tensor) -> Tensor:
        """log p of tokens, where that after the shorter contexts is given."""
        found = self.find(contexts, tokens)
        return torch.where(found < self.unknown, self.log_p[found], shorter + self.log_rest[contexts])

    def score_all(self, shorter: Tensor, contexts: Tensor) -> Tensor:
        """The same for every token: (R, V) and (R,) -> (R, V)."""
        rows = shorter + self.log_rest[contexts].unsqueeze(1)
        first, end = torch.searchsorted(self.keys, torch.stack((contexts, contexts + 1)) * self.vocab)
        counts = end - first  # of the tokens known after each context, which are neighbours
        row = torch.repeat_interleave(counts)
        places = torch.arange(len(row), device=row.device) + (first - counts.cumsum(0) + counts)[row]
        rows[row, self.keys[places] % self.vocab] = self.log_p[places]
        return rows


@dataclass(frozen=True)
class Reading:
    """What a model remembers: the context of each row, (R, order)."""

    contexts: Tensor

    def select(self, rows: Tensor) -> Reading:
        return Reading(self.contexts[rows])

    def join(self, other: Reading) -> Reading:
        return Reading(torch.cat((self.contexts, other.contexts)))


class Backoff(nn.Module):
    """A generator over back-off tables, by order from 1. It gives log-probabilities where others give logits."""

    start_id, end_id, continues = BOS, EOS, True
    ragged, unbounded, max_length = True, True, 0

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
        """log p (B, T, V) of the token after each of (B, T); with labels (B, T) their loss instead, without looking
        at other tokens. Smoothed labels are for those who learn from gradients; here they change nothing."""
        contexts = self.contexts(ids)
        if labels is None:
            return self.score_all(contexts.flatten(0, 1)).unflatten(0, ids.shape)  # (B * T, V) -> (B, T, V)
        real = labels != PAD
        nll = -self.score(contexts, labels).where(real, 0).sum()
        return Loss(nll, nll, real.sum())

    def grams(self, ids: Tensor) -> list[Tensor]:
        """The numbers of the grams of 1, 2, ... tokens that end at each of (B, T)."""
        found: list[Tensor] = []
        before = torch.zeros_like(ids)  # the empty context
        for table in self.by_order:
            found.append(table.find(before, ids))
            before = found[-1].roll(1, dims=1)
            before[:, :1] = table.unknown  # nothing stands before a row
        return found

    def contexts(self, ids: Tensor) -> Tensor:
        """What is known of the prefix up to each of (B, T): (B, T, order)."""
        return torch.stack((torch.zeros_like(ids), *self.grams(ids)[:-1]), dim=-1)

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

    def start(self, prompt: Tensor, beams: int = 1) -> Reading:
        """Read the prompts (B, P), which begin with BOS or are empty; shorter ones may be padded on either side.
        `beams` rows for each."""
        if prompt.shape[1]:
            order = (prompt != PAD).sort(dim=1, stable=True)[1]  # to the left: nothing is known of padding
            contexts = self.contexts(prompt.gather(1, order)[:, -self.order :])[:, -1]  # (B, T, order) -> (B, order)
        else:
            unknown = [0, *(table.unknown for table in self.by_order[:-1])]
            contexts = prompt.new_tensor(unknown).expand(len(prompt), -1)
        return Reading(contexts.repeat_interleave(beams, dim=0))

    def step(self, tokens: Tensor, state: Reading) -> tuple[Tensor, Reading]:
        """One token for each row, (R,) -> log p of the next, (R, V)."""
        before = state.contexts.unbind(-1)
        longer = [table.find(context, tokens) for table, context in zip(self.by_order[:-1], before, strict=False)]
        contexts = torch.stack((torch.zeros_like(tokens), *longer), dim=-1)
        return self.score_all(contexts), Reading(contexts)
