"""Sliding window: texts longer than the context of training.

Most position embeddings do not extrapolate beyond their training length (docs/language-models.md): a small GPT with
rotary ones writes gibberish after its context. So, whatever their kind, when the KV cache holds as many tokens as the
training context it is discarded and the later half of them is read again, from position 0. Every token thus has at
least half of the context before it, and is read twice at most.

Letters: B prompts, R rows, P tokens read.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from headwise.decode.config import DecodeConfig
from headwise.decode.generator import Generator, Source, source_length
from headwise.errors import UserError

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WindowState:
    """The state of the model, and the tokens that it has read."""

    inner: Any
    past: Tensor  # (R, P)

    def select(self, rows: Tensor) -> WindowState:
        return WindowState(self.inner.select(rows), self.past[rows])

    def join(self, other: WindowState) -> WindowState:
        raise UserError("join: a sliding window restarts all rows at once; decode with a context that fits the text")


class SlidingWindow(nn.Module):
    """A language model whose output length is unlimited; it attends to at most `context` tokens."""

    continues_prompt = True
    ragged = joins = False  # rows restart together, so each batch has prompts of one length
    max_length = 0

    def __init__(self, model: Generator, context: int):
        super().__init__()
        self.model, self.context = model, context
        self.start_id, self.end_id, self.vocab = model.start_id, model.end_id, model.vocab
        self.training = getattr(model, "training", False)

    def start(self, source: Tensor, beams: int = 1) -> WindowState:
        past = last_columns(source, self.context - 1)
        return WindowState(self.model.start(past, beams=beams), past.repeat_interleave(beams, 0))  # (B, P) -> (R, P)

    def step(self, tokens: Tensor, state: WindowState) -> tuple[Tensor, WindowState]:
        inner, past = state.inner, state.past
        if past.shape[1] >= self.context:
            past = last_columns(past, self.context // 2)
            inner = self.model.start(past)
        logits, inner = self.model.step(tokens, inner)
        return logits, WindowState(inner, torch.cat((past, tokens[:, None]), dim=1))


def last_columns(ids: Tensor, count: int) -> Tensor:
    """The last `count` columns; fewer if there are fewer.

    >>> last_columns(torch.arange(4)[None], 2).tolist(), last_columns(torch.arange(4)[None], 0).tolist()
    ([[2, 3]], [[]])
    """
    return ids[:, max(0, ids.shape[1] - count) :]


def wrap_in_window(model: Generator, sources: Sequence[Source], config: DecodeConfig) -> Generator:
    """The model with a sliding window of `config.context` tokens; the model itself if every text fits."""
    if not (model.continues_prompt and config.context):
        return model
    context = min(config.context, model.max_length or config.context)
    if max((source_length(source) + config.limit(source_length(source)) for source in sources), default=0) < context:
        return model
    longest = max(map(source_length, sources))
    if longest >= context:
        log.warning("a prompt has %d tokens and the context %d: only the end of the prompt is read", longest, context)
    return SlidingWindow(model, context)
