"""Object detection as set prediction (DETR, Carion et al. 2020)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headwise.blocks.images import ImageEncoder, count_class_tokens
from headwise.blocks.record import Collector
from headwise.blocks.stack import Stack
from headwise.blocks.stream import SIDE, Context, Stream


@dataclass(frozen=True)
class Detections:
    """Q slots for each image, in no order: of what class each is, the last one being nothing, and where."""

    logits: Tensor  # (B, Q, K + 1)
    boxes: Tensor  # (B, Q, 4): x, y, width and height as shares of the image, without its padding

    def best(self) -> tuple[Tensor, Tensor]:
        """The probability of the likeliest class, and that class: 2 x (B, Q)."""
        return self.logits.float().softmax(-1)[..., :-1].max(-1)


class BackboneStem(nn.Module):
    """The last grid of features of another encoder, as tokens of the model's width."""

    def __init__(self, backbone: ImageEncoder, features: int, width: int):
        super().__init__()
        self.backbone = backbone
        self.project = nn.Linear(features, width)

    def forward(self, pixels: Tensor) -> Stream:
        stream: Stream = self.backbone(pixels, Context().at("backbone"))
        return stream.with_x(self.project(stream.x))


class PaddedEncoder(ImageEncoder):
    """Images of several sizes in one batch: `keep` (B, H, W) is True where an image has pixels."""

    def forward(self, pixels: Tensor, ctx: Context, keep: Tensor | None = None) -> Stream:
        stream: Stream = self.stem(pixels)
        if keep is not None:
            shrunk = F.interpolate(keep.unsqueeze(1).float(), stream.grid).flatten(1)  # (B, H, W) -> (B, hw)
            stream = replace(stream, keep=F.pad(shrunk, (count_class_tokens(stream), 0), value=1.0) > 0)
        return self.stack(stream, ctx.at("encoder"))


class Detector(nn.Module):
    """Slots that begin as nothing but their places look at each other and at the image, layer after layer; what each
    has become says a class and a box (Carion et al. 2020, figure 2)."""

    def __init__(self, encoder: PaddedEncoder, decoder: Stack, queries: int, width: int, classes: int):
        super().__init__()
        self.encoder, self.decoder = encoder, decoder
        self.queries, self.width = queries, width
        self.classes = nn.Linear(width, classes + 1)
        self.boxes = nn.Sequential(
            nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 4), nn.Sigmoid()
        )

    def forward(self, pixels: Tensor, keep: Tensor | None = None) -> Detections:
        """What is in images (B, C, H, W) of normalised pixels, of which those where `keep` (B, H, W) is False are
        padding."""
        return self.layers(pixels, keep)[-1]

    def layers(self, pixels: Tensor, keep: Tensor | None = None) -> tuple[Detections, ...]:
        """What each layer of the decoder would say if it were the last, by the same norm and heads."""
        memory = {"encoder": self.encoder(pixels, Context(), keep)}
        side = Collector("layer", onward=SIDE.get())
        blank = memory["encoder"].x.new_zeros(len(pixels), self.queries, self.width)
        self.decoder(Stream.of(blank), Context(memory, side=side).at("decoder"))
        x = self.decoder.final(torch.stack([stream.x for stream in side.all("layer")]))  # (L, B, Q, C)
        return tuple(map(Detections, self.classes(x), self.boxes(x)))
