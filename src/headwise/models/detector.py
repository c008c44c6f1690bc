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
from headwise.utils.notebook import HtmlTree


@dataclass(frozen=True)
class Detections:
    """Predictions of Q object queries for each image, an unordered set; the last class is "no object"."""

    logits: Tensor  # (B, Q, K + 1)
    boxes: Tensor  # (B, Q, 4): x, y, width and height relative to the image without its padding

    def best(self) -> tuple[Tensor, Tensor]:
        """Probability and index of the most probable class, "no object" excluded: 2 x (B, Q)."""
        return self.logits.float().softmax(-1)[..., :-1].max(-1)


class BackboneStem(nn.Module):
    """The last feature map of a backbone, as tokens projected to the model's width."""

    def __init__(self, backbone: ImageEncoder, features: int, width: int):
        super().__init__()
        self.backbone = backbone
        self.project = nn.Linear(features, width)

    def forward(self, pixels: Tensor) -> Stream:
        stream: Stream = self.backbone(pixels, Context().at("backbone"))
        return stream.with_x(self.project(stream.x))


class PaddedEncoder(ImageEncoder):
    """Image encoder with a padding mask: `keep` (B, H, W) is True where an image has pixels."""

    def forward(self, pixels: Tensor, ctx: Context, keep: Tensor | None = None) -> Stream:
        stream: Stream = self.stem(pixels)
        if keep is not None:
            resized = F.interpolate(keep.unsqueeze(1).float(), stream.grid).flatten(1)  # (B, H, W) -> (B, hw)
            stream = replace(stream, keep=F.pad(resized, (count_class_tokens(stream), 0), value=1.0) > 0)
        return self.stack(stream, ctx.at("encoder"))


class Detector(HtmlTree, nn.Module):
    """DETR: object queries attend to each other and to the image in every decoder layer; a linear head predicts the
    class and an MLP the box of each (Carion et al. 2020, figure 2)."""

    def __init__(self, encoder: PaddedEncoder, decoder: Stack, queries: int, width: int, classes: int):
        super().__init__()
        self.encoder, self.decoder = encoder, decoder
        self.queries, self.width = queries, width
        self.classes = nn.Linear(width, classes + 1)
        self.boxes = nn.Sequential(
            nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 4), nn.Sigmoid()
        )

    def forward(self, pixels: Tensor, keep: Tensor | None = None) -> Detections:
        """Detections in images (B, C, H, W) of normalised pixels; `keep` (B, H, W) is False where there is padding."""
        return self.layers(pixels, keep)[-1]

    def layers(self, pixels: Tensor, keep: Tensor | None = None) -> tuple[Detections, ...]:
        """Detections from every decoder layer, with the same norm and heads, for auxiliary losses."""
        memory = {"encoder": self.encoder(pixels, Context(), keep)}
        side = Collector("layer", onward=SIDE.get())
        target = memory["encoder"].x.new_zeros(pixels.shape[0], self.queries, self.width)
        self.decoder(Stream.of(target), Context(memory, side=side).at("decoder"))
        x = self.decoder.final(torch.stack([stream.x for stream in side.list_values("layer")]))  # (L, B, Q, C)
        return tuple(map(Detections, self.classes(x), self.boxes(x)))
