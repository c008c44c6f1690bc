"""Greedy decoding: the most probable token at every step."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from headwise.decode.generator import Generator, Request, topk
from headwise.decode.hypothesis import Hypothesis
from headwise.decode.token_loop import run_token_loop


def most_probable(log_probs: Tensor, step: int, rows: Tensor) -> tuple[Tensor, Tensor]:
    """The most probable token of each row, and its log P."""
    gains, tokens = topk(log_probs, 1)
    return gains[:, 0], tokens[:, 0]


def greedy_search(model: Generator, state: Any, request: Request) -> list[list[Hypothesis]]:
    """Greedy decoding: one hypothesis per source."""
    return run_token_loop(model, state, request, most_probable)
