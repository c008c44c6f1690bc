"""Text encoders with a head: token and sequence classification, extractive question answering, sentence embedding."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headwise.blocks.heads import VocabularyHead
from headwise.blocks.losses import Loss
from headwise.blocks.pool import count_needed_outputs
from headwise.blocks.stack import Embedding, Encoder, Stack
from headwise.blocks.stream import Context, Stream
from headwise.utils.notebook import HtmlTree


class TextDecoder(nn.Module):
    """The decoder of a text classifier: it reads the same text as the encoder, after the token `start_id`, with the
    encoder's outputs as memory (Lewis et al. 2020, section 3.1)."""

    def __init__(self, embed: Embedding, stack: Stack, start_id: int):
        super().__init__()
        self.embed, self.stack, self.start_id = embed, stack, start_id

    def forward(self, ids: Tensor, memory: Mapping[str, Stream]) -> Tensor:
        """(B, T) ids -> (B, T, C): each output is that of the token before."""
        shifted = F.pad(ids[:, :-1], (1, 0), value=self.start_id)
        x: Tensor = self.stack(self.embed(shifted), Context(memory).at("decoder")).x
        return x


def compute_states(encoder: Encoder, decoder: TextDecoder | None, ids: Tensor, ctx: Context) -> Stream:
    """The outputs of the encoder or, where there is one, of the decoder."""
    if decoder is None:
        stream: Stream = encoder(ids, ctx)
        return stream
    memory = encoder.read(ids)
    if encoder.prefix_id is not None:
        ids = F.pad(ids, (1, 0), value=encoder.prefix_id)  # (B, T) -> (B, 1 + T)
    return memory["encoder"].with_x(decoder(ids, memory))


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
    """Sequence classification: p(label | text), from the pooled vectors of its tokens, of the encoder or of a
    decoder."""

    def __init__(self, encoder: Encoder, pool: nn.Module, head: VocabularyHead, decoder: TextDecoder | None = None):
        super().__init__()
        self.encoder, self.pool, self.head, self.decoder = encoder, pool, head, decoder

    def forward(self, ids: Tensor, labels: Tensor | None = None, label_smoothing: float = 0.0) -> Tensor | Loss:
        """Logits (B, L) for (B, T) ids; with labels (B,) their loss instead."""
        ctx = Context(outputs_needed=count_needed_outputs([self.pool]))
        x = self.pool(compute_states(self.encoder, self.decoder, ids, ctx))
        return self.head(x) if labels is None else self.head.loss(x, labels, label_smoothing)

    @property
    def max_length(self) -> int:
        """Maximum number of tokens of a text, by the learned positions; 0: unlimited."""
        limit: int = self.encoder.embed.positions.max_length
        return limit - (self.encoder.prefix_id is not None) - (self.encoder.suffix_id is not None) if limit else 0


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

    def __init__(self, encoder: Encoder, head: nn.Module, end: int = 2, decoder: TextDecoder | None = None):
        super().__init__()
        self.encoder, self.head, self.end, self.decoder = encoder, head, end, decoder

    def forward(self, ids: Tensor, labels: Tensor | None = None, label_smoothing: float = 0.0) -> Tensor | Loss:
        """Logits (B, T, 2) of start and end for (B, T) ids, masked outside the second text; with labels (B, 2) the loss
        of both instead, where -1 is ignored."""
        ends = ids == self.end
        begins = ends & ~F.pad(ends, (1, 0))[:, :-1]  # of several EOS in a row the first
        second = (begins.cumsum(1) == 1) & ~ends & (ids != self.encoder.pad)
        second = second | ~second.any(1, keepdim=True)  # without a second text no position is masked
        logits = self.head(self.encoder.drop_prefix(compute_states(self.encoder, self.decoder, ids, Context())))
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
