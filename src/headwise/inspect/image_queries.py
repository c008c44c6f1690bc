"""What looks at an image from outside of it: latents of a Perceiver, slots of a DETR, words of a caption."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import singledispatch
from typing import Any

import numpy as np
import torch

from headwise.blocks.evaluation import get_device
from headwise.decode.driver import decode
from headwise.errors import UserError
from headwise.inspect.image_maps import Gaze, gazes
from headwise.inspect.panels import Box
from headwise.inspect.scene import Scene
from headwise.models.detector import Detector
from headwise.models.encoder_decoder import EncoderDecoder
from headwise.models.image_classifier import ImageClassifier
from headwise.models.text_classifier import TextEncoder
from headwise.text import EOS

MOST = 48  # latents and words that are shown
SURE, FEW = 0.5, 4  # slots that are: those that are sure of something, or else the surest few


@dataclass(frozen=True)
class Asked:
    """A call of the model, and the names of those of its queries that are shown, by number; slots have boxes."""

    call: Callable[[], Any]
    names: dict[int, str]
    boxes: dict[int, tuple[Box, ...]] = field(default_factory=dict)

    def gazes(self, model: Any) -> list[Gaze]:
        """Their looks at the image."""
        found = [each for each in gazes(model, self.call) if each.asks is None and not each.by_marks]
        if not found or not self.names:
            raise UserError(
                "--view queries: here only the image itself asks, no latents, slots or words; use --view heads"
            )
        return found


@singledispatch
def asked(model: Any, scene: Scene) -> Asked:
    """What asks in this kind of model, for one image."""
    raise UserError("--view queries: is of models that read, label, find or describe; name another run")


@asked.register
def _latents(model: ImageClassifier | TextEncoder, scene: Scene) -> Asked:
    count = len(getattr(model.encoder, "latents", ()))
    names = {number: f"latent {number + 1}" for number in range(min(count, MOST))}
    return Asked(lambda: model(scene.pixels.normalised(scene.read)), names)


@asked.register
def _slots(model: Detector, scene: Scene) -> Asked:
    (found,) = scene.loaded.check_task("detect").detect(model, scene.read)
    sure = max(int((found.scores >= SURE).sum()), FEW)
    shares = found.corners / np.array([scene.pixels.width, scene.pixels.height] * 2)
    rows = list(zip(found.slots.tolist(), found.labels, found.scores, shares.tolist(), strict=True))[:sure]
    names = {slot: f"{label} {score:.2f}" for slot, label, score, _ in rows}
    boxes: dict[int, tuple[Box, ...]] = {slot: ((x0, y0, x1, y1),) for slot, _, _, (x0, y0, x1, y1) in rows}
    return Asked(lambda: model(scene.pixels.normalised(scene.read)), names, boxes)


@asked.register
def _words(model: EncoderDecoder, scene: Scene) -> Asked:
    pixels, tokeniser = scene.pixels.normalised(scene.read), scene.loaded.tokenisers.target
    found = decode(model, list(pixels), scene.loaded.decoding(), get_device(model), tokeniser)
    written = [*found[0][0].ids, EOS][:MOST]
    read = torch.tensor([[model.start_id, *written[:-1]]], device=get_device(model))
    return Asked(lambda: model(pixels, read), dict(enumerate(tokeniser.tokens(written))))
