"""Image classification: an encoder of images with one head or several."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from headwise.blocks.pool import count_needed_outputs
from headwise.blocks.stream import Context, Stream


class ImageHead(nn.Module):
    """A vector of the image, and its labels: (B, T, D) -> (B, L)."""

    def __init__(self, pool: nn.Module, head: nn.Module):
        super().__init__()
        self.pool, self.head = pool, head

    def forward(self, stream: Stream) -> Tensor:
        return self.head(self.pool(stream))


class ImageClassifier(nn.Module):
    """p(label | image). Where there are several heads, each has a voice of its own in training, and their mean counts
    (Touvron et al. 2021, section 4)."""

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

    def ensemble(self, voices: Sequence[Tensor]) -> Tensor:
        """What the heads say together."""
        return voices[0] if len(voices) == 1 else torch.stack(tuple(voices)).mean(0)


class TokenLabelingClassifier(ImageClassifier):
    """The last head gives advice: it counts half, beside the mean of the others (Jiang et al. 2021, "All Tokens
    Matter": token labelling)."""

    def ensemble(self, voices: Sequence[Tensor]) -> Tensor:
        return super().ensemble(voices[:-1]) + 0.5 * voices[-1]
