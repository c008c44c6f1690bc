"""The masked language model (Devlin et al. 2019)."""

from __future__ import annotations

from dataclasses import replace

import torch.nn.functional as F
from torch import Tensor, nn

from headwise.blocks.heads import Loss, VocabularyHead
from headwise.blocks.stack import Encoder
from headwise.blocks.stream import Context


class MaskedLanguageModel(nn.Module):
    """A masked language model, p(hidden tokens | the others) (Devlin et al. 2019). The last word of the vocabulary is
    the mask.

    `order` is the head that says whether a second text follows the first; an nn.Identity where there is none.
    """

    def __init__(self, encoder: Encoder, head: VocabularyHead, order: nn.Module):
        super().__init__()
        self.encoder, self.head, self.order = encoder, head, order

    @property
    def mask_id(self) -> int:
        return self.head.table.num_embeddings - 1

    def forward(
        self, ids: Tensor, labels: Tensor | None = None, label_smoothing: float = 0.0, apart: Tensor | None = None
    ) -> Tensor | Loss:
        """Logits (B, T, V) for (B, T) ids; with labels, PAD where nothing is hidden, the loss of these places. With
        `apart` (B,), 1 where the second text does not follow the first, the loss of telling that is added, so that the
        whole is the sum of two means."""
        stream = self.encoder(ids, Context())
        x = self.encoder.tokens(stream)
        if labels is None:
            return self.head(x)
        hidden = labels != self.head.pad  # only these few rows meet the vocabulary
        loss = self.head.loss(x[hidden], labels[hidden], label_smoothing)
        if apart is None:
            return loss
        return replace(loss, total=loss.total + loss.count * F.cross_entropy(self.order(stream), apart))
