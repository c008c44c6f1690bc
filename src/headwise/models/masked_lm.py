"""The masked language model (Devlin et al. 2019)."""

from __future__ import annotations

from dataclasses import replace

import torch.nn.functional as F
from torch import Tensor, nn

from headwise.blocks.heads import OutputLayer
from headwise.blocks.losses import Loss
from headwise.blocks.stack import Encoder
from headwise.blocks.stream import Context
from headwise.utils.notebook import HtmlTree


class MaskedLanguageModel(HtmlTree, nn.Module):
    """A masked language model with next-sentence prediction (Devlin et al. 2019): p(masked tokens | the others). The
    last id of the vocabulary is the mask token.

    `next_sentence_head` is the head of next-sentence prediction, or an nn.Identity.
    """

    def __init__(self, encoder: Encoder, head: OutputLayer, next_sentence_head: nn.Module):
        super().__init__()
        self.encoder, self.head, self.next_sentence_head = encoder, head, next_sentence_head

    @property
    def mask_id(self) -> int:
        return self.head.vocab - 1

    def forward(
        self,
        ids: Tensor,
        labels: Tensor | None = None,
        label_smoothing: float = 0.0,
        positions: Tensor | None = None,
        next_sentence_labels: Tensor | None = None,
    ) -> Tensor | Loss:
        """Logits (B, T, V) for (B, T) ids; with labels, which are PAD where no token is masked, the loss of the masked
        tokens. With the `positions` (N,) of these among the B * T, logits are computed for them alone. With
        `next_sentence_labels` (B,), 1 where the second text does not follow the first, the next-sentence loss is added,
        so that the result is the sum of two means."""
        stream = self.encoder(ids, Context())
        x = self.encoder.drop_prefix(stream)
        if labels is None:
            return self.head(x)
        if positions is not None:
            x, labels = x.flatten(0, 1)[positions], labels.flatten()[positions]  # (B, T, C) -> (N, C), (B, T) -> (N,)
        loss = self.head.loss(x, labels, label_smoothing)
        if next_sentence_labels is None:
            return loss
        logits, rows = self.next_sentence_head(stream), max(len(next_sentence_labels), 1)
        next_sentence_loss = F.cross_entropy(logits, next_sentence_labels, reduction="sum") / rows
        return replace(loss, total=loss.total + loss.count * next_sentence_loss)

    def predict_masked(self, ids: Tensor, masked: Tensor) -> Tensor:
        """Logits (n, V) of the tokens of `ids` (B, T) where `masked` (B, T) is True."""
        logits: Tensor = self.head(self.encoder.drop_prefix(self.encoder(ids, Context()))[masked])
        return logits
