"""A language model that answers: source and target as one text (Liu et al. 2018, section 4.2.3: T-D).

Letters: B rows, S source and T target positions, C width.
"""

from __future__ import annotations

import torch
from torch import Tensor

from headwise.blocks.heads import Loss
from headwise.blocks.stack import LanguageModel
from headwise.blocks.stream import Context
from headwise.text import PAD


class PrefixLM(LanguageModel):
    """A prefix language model: p(target | source) by a decoder alone, which reads `source EOS BOS target EOS`; only the
    target is learnt.

    Called, trained and decoded like an encoder-decoder.
    """

    continues = False

    def forward(  # type: ignore[override]
        self, source: Tensor, target: Tensor, labels: Tensor | None = None, label_smoothing: float = 0.0
    ) -> Tensor | Loss:
        """Logits (B, T, V) for (B, S) and (B, T) ids; with labels (B, T) their loss instead."""
        ids = torch.cat((source, target), dim=1)  # (B, S + T)
        # The padding goes behind both texts, where nothing sees it, and positions have no gaps.
        order = (ids == PAD).to(torch.uint8).argsort(dim=1, stable=True)
        x = self.decoder(ids.gather(1, order), Context()).x
        places = order.argsort(dim=1)[:, source.shape[1] :]  # (B, T) where the target's tokens went
        x = x.gather(1, places.unsqueeze(-1).expand(-1, -1, x.shape[-1]))  # (B, S + T, C) -> (B, T, C)
        return self.decoder.head(x) if labels is None else self.decoder.head.loss(x, labels, label_smoothing)
