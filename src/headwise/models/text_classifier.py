"""Text encoders with a head: token and sequence classification, extractive question answering, sentence embedding."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headwise.blocks.heads import VocabularyHead
from headwise.blocks.losses import Loss
from headwise.blocks.pool import count_needed_outputs
from headwise.blocks.stack import Encoder
from headwise.blocks.stream import Context
from headwise.utils.notebook import HtmlTree


class TokenClassifier(HtmlTree, nn.Module):
    """Token classification: p(label of each token | text)."""

    def __init__(self, encoder: Encoder, head: VocabularyHead):
        super().__init__()
        self.encoder, self.head = encoder, head

    def forward(self, ids: Tensor, labels: Tensor | None = None, label_smoothing: float = 0.0) -> Tensor | Loss:
        """Logits (B, T, L) for (B, T) ids; with labels (B, T) their loss instead."""
        x = self.encoder.drop_prefix(self.encoder(ids, Context()))
        return self.head(x) if labels is None else self.head.loss(x, labels, label_smoothing)


class SequenceClassifier(HtmlTree, nn.Module):
    """Sequence classification: p(label | text), from the pooled vectors of its tokens."""

    def __init__(self, encoder: Encoder, pool: nn.Module, head: VocabularyHead):
        super().__init__()
        self.encoder, self.pool, self.head = encoder, pool, head

    def forward(self, ids: Tensor, labels: Tensor | None = None, label_smoothing: float = 0.0) -> Tensor | Loss:
        """Logits (B, L) for (B, T) ids; with labels (B,) their loss instead."""
        x = self.pool(self.encoder(ids, Context(outputs_needed=count_needed_outputs([self.pool]))))
        return self.head(x) if labels is None else self.head.loss(x, labels, label_smoothing)


class TextEncoder(HtmlTree, nn.Module):
    """Sentence embedding: the pooled vectors of the tokens, without a head."""

    def __init__(self, encoder: Encoder, pool: nn.Module):
        super().__init__()
        self.encoder, self.pool = encoder, pool

    def forward(self, ids: Tensor) -> Tensor:
        """(B, T) ids -> (B, C)."""
        return self.pool(self.encoder(ids, Context(outputs_needed=count_needed_outputs([self.pool]))))


class SpanClassifier(HtmlTree, nn.Module):
    """Extractive question answering: p(start, end | question and text): the answer is a span of the second of two
    texts."""

    def __init__(self, encoder: Encoder, head: nn.Module, end: int = 2):
        super().__init__()
        self.encoder, self.head, self.end = encoder, head, end

    def forward(self, ids: Tensor, labels: Tensor | None = None, label_smoothing: float = 0.0) -> Tensor | Loss:
        """Logits (B, T, 2) of start and end for (B, T) ids, masked outside the second text; with labels (B, 2) the loss
        of both instead, where -1 is ignored."""
        ends = ids == self.end
        begins = ends & ~F.pad(ends, (1, 0))[:, :-1]  # of several EOS in a row the first
        second = (begins.cumsum(1) == 1) & ~ends & (ids != self.encoder.pad)
        second = second | ~second.any(1, keepdim=True)  # without a second text no position is masked
        logits = self.head(self.encoder.drop_prefix(self.encoder(ids, Context())))
        logits = logits.masked_fill(~second.unsqueeze(-1), torch.finfo(logits.dtype).min)
        if labels is None:
            return logits
        log_p = logits.log_softmax(1)
        plain = F.nll_loss(log_p, labels, ignore_index=-1, reduction="sum")
        count = (labels >= 0).sum().clamp(min=1)
        if not label_smoothing:
            return Loss(plain, plain.detach(), count)
        # Label smoothing over the unmasked positions: for the others log P is minus infinity.
        possible = second.unsqueeze(-1)
        uniform = -log_p.masked_fill(~possible, 0.0).sum(1) / possible.sum(1)  # (B, T, 2) -> (B, 2)
        smooth = (1 - label_smoothing) * plain + label_smoothing * uniform[labels >= 0].sum()
        return Loss(smooth, plain.detach(), count)
