"""Text encoders with a head: token and sequence classification, extractive question answering, sentence embedding."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headwise.blocks.heads import OutputLayer, VocabularyHead
from headwise.blocks.losses import Loss
from headwise.blocks.pool import count_needed_outputs
from headwise.blocks.stack import Embedding, Encoder, Stack, declares, number_texts
from headwise.blocks.stream import Context, Stream
from headwise.errors import UserError
from headwise.text import EOS, PAD
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


class DecoderClassifier(SequenceClassifier):
    """A causal sequence classifier that reads the extract token, with a language model head over the same states
    (Radford et al. 2018, sections 3.2 and 3.3). Inputs are `start A extract`, or `start A delimiter B extract` of two
    texts.

    Without `use_delimiters`, start is BOS and the other two are EOS, as in a `SequenceClassifier`. With `both_orders`,
    a pair is read as A, B and as B, A, and the pooled vectors are added before the head.
    """

    def __init__(self, encoder: Encoder, pool: nn.Module, head: VocabularyHead, language_model_head: OutputLayer):
        super().__init__(encoder, pool, head)
        self.language_model_head = language_model_head
        self.delimiter_id = self.extract_id = EOS
        self.both_orders = False
        for part in encoder.stack.parts:
            if not declares(part, "causal"):
                raise UserError(
                    f"task: {type(part).__name__} sees later tokens, so this model has no language model loss; choose "
                    "a decoder, such as gpt2, or leave out auxiliary, delimiters and both_orders"
                )

    def use_delimiters(self) -> None:
        """Take the last three ids of the vocabulary as start, delimiter and extract token."""
        vocab = self.encoder.embed.table.num_embeddings
        self.encoder.prefix_id, self.delimiter_id, self.extract_id = range(vocab - 3, vocab)

    def forward(  # type: ignore[override]
        self, ids: Tensor, labels: Tensor | None = None, label_smoothing: float = 0.0, language_model: bool = False
    ) -> Tensor | Loss | tuple[Tensor | Loss, Loss]:
        """Logits (B, L) for (B, T) ids; with labels (B,) their loss instead. With `language_model` also the loss of
        the next tokens, start excluded and extract included."""
        orders = torch.cat((ids, swap_texts(ids))) if self.both_orders else ids  # (B, T) -> (2B, T)
        inputs = self.mark_texts(orders)
        stream = self.encoder(inputs, Context())
        x = self.pool(stream)
        if self.both_orders:
            x = x.unflatten(0, (2, -1)).sum(0)  # (2B, C) -> (B, C)
        outputs = self.head(x) if labels is None else self.head.loss(x, labels, label_smoothing)
        if not language_model:
            return outputs
        next_ids = F.pad(inputs, (0, 1), value=self.encoder.pad)[:, self.encoder.prefix_id is None :]
        return outputs, self.language_model_head.loss(stream.x, next_ids)

    def mark_texts(self, ids: Tensor) -> Tensor:
        """The ids with the extract token for the last EOS of a row, and the delimiter for others."""
        last = torch.arange(ids.shape[1], device=ids.device) + 1 == (ids != self.encoder.pad).sum(1, keepdim=True)
        ends = ids == EOS
        return ids.masked_fill(ends, self.delimiter_id).masked_fill(ends & last, self.extract_id)


def swap_texts(ids: Tensor) -> Tensor:
    """The texts of each row in reverse order, each with the EOS that ends it.

    >>> swap_texts(torch.tensor([[5, 6, 2, 7, 2, 0], [8, 2, 0, 0, 0, 0]])).tolist()
    [[7, 2, 5, 6, 2, 0], [8, 2, 0, 0, 0, 0]]
    """
    numbers = number_texts(ids).masked_fill(ids == PAD, -1)
    return ids.gather(1, numbers.argsort(dim=1, descending=True, stable=True))


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
        length = log_p.shape[1]  # torch refuses classes of which there are none
        plain = F.nll_loss(log_p, labels, ignore_index=-1, reduction="sum") if length else log_p.sum()
        count = (labels >= 0).sum().clamp(min=1)
        if not label_smoothing:
            return Loss(plain, plain.detach(), count)
        # Label smoothing over the unmasked positions: for the others log P is minus infinity.
        possible = second.unsqueeze(-1)
        uniform = -log_p.masked_fill(~possible, 0.0).sum(1) / possible.sum(1).clamp(min=1)  # (B, T, 2) -> (B, 2)
        smooth = (1 - label_smoothing) * plain + label_smoothing * uniform.where(labels >= 0, 0.0).sum()
        return Loss(smooth, plain.detach(), count)
