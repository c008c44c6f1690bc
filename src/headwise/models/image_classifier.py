"""Image classification: an image encoder with one or several heads."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from headwise.blocks.pool import count_needed_outputs
from headwise.blocks.stream import Context, Stream
from headwise.utils.notebook import HtmlTree


class ImageHead(nn.Module):
    """Pooling and a classification head: (B, T, D) -> (B, L)."""

    def __init__(self, pool: nn.Module, head: nn.Module):
        super().__init__()
        self.pool, self.head = pool, head

    def forward(self, stream: Stream) -> Tensor:
        return self.head(self.pool(stream))


class ImageClassifier(HtmlTree, nn.Module):
    """Image classifier, p(label | image). Several heads have a loss each in training; the prediction is the mean of
    their logits (Touvron et al. 2021, section 4)."""

    def __init__(self, encoder: nn.Module, heads: Sequence[nn.Module]):
        super().__init__()
        self.encoder, self.heads = encoder, nn.ModuleList(heads)

    def forward(self, pixels: Tensor) -> Tensor:
        """Logits (B, L) for (B, C, H, W) normalised pixels."""
        return self.ensemble(self.head_logits(pixels))

    def head_logits(self, pixels: Tensor) -> tuple[Tensor, ...]:
        """The logits of each head."""
        stream = self.encoder(
            pixels, Context(outputs_needed=count_needed_outputs(getattr(head, "pool", head) for head in self.heads))
        )
        return tuple(head(stream) for head in self.heads)

    def ensemble(self, head_logits: Sequence[Tensor]) -> Tensor:
        """Mean of the heads' logits."""
        return head_logits[0] if len(head_logits) == 1 else torch.stack(tuple(head_logits)).mean(0)


class TokenLabelingClassifier(ImageClassifier):
    """Token labelling: the last head's logits, from patches, are added with weight 0.5 to the mean of the others (Jiang
    et al. 2021, "All Tokens Matter")."""

    def ensemble(self, head_logits: Sequence[Tensor]) -> Tensor:
        return super().ensemble(head_logits[:-1]) + 0.5 * head_logits[-1]
