"""A small real generator whose best sequences can be enumerated."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

PAD, START, END = 0, 1, 2


@dataclass(frozen=True)
class Place:
    at: Tensor  # (R,) rows of the table

    def select(self, rows: Tensor) -> Place:
        return Place(self.at[rows])


class TableModel(nn.Module):
    """Logits from a table (M, V), whose row follows from source and prefix: at' = memory * at + token mod M.

    With memory 0 it is a Markov chain over tokens; otherwise the whole prefix counts.
    """

    start_id, end_id = START, END
    continues_prompt, ragged, joins, max_length = False, True, False, 0

    def __init__(self, table: Tensor, memory: int):
        super().__init__()
        self.register_buffer("table", table)
        self.memory = memory
        self.rows_seen: list[int] = []

    @property
    def vocab(self) -> int:
        return self.table.shape[1]

    def start(self, source: Tensor, beams: int = 1) -> Place:
        weights = torch.arange(1, source.shape[1] + 1)
        return Place((source * weights).sum(1).repeat_interleave(beams))  # padding is 0 and adds nothing

    def step(self, tokens: Tensor, state: Place) -> tuple[Tensor, Place]:
        self.rows_seen.append(len(tokens))
        at = (state.at * self.memory + tokens) % len(self.table)
        return self.table[at], Place(at)

    def continuations(self, prefix: tuple[int, ...], source: list[int]) -> dict[int, float]:
        """log P of every token that may follow, by plain Python."""
        at = sum(place * token for place, token in enumerate([*source, END], start=1))
        for token in (START, *prefix):
            at = (at * self.memory + token) % len(self.table)
        logits = self.table[at].tolist()
        norm = math.log(math.fsum(math.exp(logit) for logit in logits))
        return {token: logits[token] - norm for token in range(self.vocab) if token not in (PAD, START)}

    def sentences(self, source: list[int], limit: int) -> Iterator[tuple[tuple[int, ...], float]]:
        """Every sentence of up to `limit` tokens with its log P, end included."""
        prefixes = [((), 0.0)]
        for length in range(limit + 1):
            longer = []
            for prefix, log_prob in prefixes:
                for token, gain in self.continuations(prefix, source).items():
                    if token == END:
                        yield prefix, log_prob + gain
                    elif length < limit:
                        longer.append(((*prefix, token), log_prob + gain))
            prefixes = longer


@pytest.fixture(scope="session")
def table_model():
    """A random model in which every prefix has logits of its own."""

    def make(vocab: int = 6, seed: int = 0, spread: float = 2.0, rows: int = 997) -> TableModel:
        generator = torch.Generator().manual_seed(seed)
        return TableModel(spread * torch.randn(rows, vocab, generator=generator), memory=31)

    return make


@pytest.fixture(scope="session")
def markov_model():
    """A Markov chain over tokens from {token: {next token: probability}}."""

    def make(vocab: int, chain: dict[int, dict[int, float]]) -> TableModel:
        table = torch.full((vocab, vocab), -torch.inf)
        table[:, END] = 0  # tokens the chain does not name end the sentence
        for token, nexts in chain.items():
            table[token] = -torch.inf
            for following, probability in nexts.items():
                table[token, following] = math.log(probability)
        return TableModel(table, memory=0)

    return make
