"""Queries that are not patches of the image: latents of Perceiver, object queries of DETR, words of a caption."""

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
from headwise.inspect.image_inspection import ImageInspection
from headwise.inspect.image_maps import ImageAttention, record_image_attention
from headwise.inspect.panels import Box
from headwise.models.detector import Detector
from headwise.models.encoder_decoder import EncoderDecoder
from headwise.models.image_classifier import ImageClassifier
from headwise.models.text_classifier import TextEncoder
from headwise.text import EOS

MAX_QUERIES = 48  # latents and words that are shown
MIN_SCORE, MIN_BOXES = 0.5, 4  # object queries that are shown: those of this score, and at least the best few


@dataclass(frozen=True)
class ImageQueries:
    """A forward call of the model, and the names of the queries to be shown, by number; object queries have boxes."""

    call: Callable[[], Any]
    names: dict[int, str]
    boxes: dict[int, tuple[Box, ...]] = field(default_factory=dict)

    def record_attention(self, model: Any) -> list[ImageAttention]:
        """Record their cross-attention to the image."""
        attentions = record_image_attention(model, self.call)
        cross = [attention for attention in attentions if attention.is_cross_attention]
        if not cross or not self.names:
            raise UserError(
                "--view queries: this model has no latents, object queries or words that attend to the image; "
                "use --view heads"
            )
        return cross


@singledispatch
def find_queries(model: Any, inspection: ImageInspection) -> ImageQueries:
    """Find the queries of a model for one image, by its kind."""
    raise UserError("--view queries: no view of this kind of model; name a run that classifies, detects or captions")


@find_queries.register
def _find_latents(model: ImageClassifier | TextEncoder, inspection: ImageInspection) -> ImageQueries:
    count = len(getattr(model.encoder, "latents", ()))
    names = {number: f"latent {number + 1}" for number in range(min(count, MAX_QUERIES))}
    return ImageQueries(lambda: model(inspection.pixels.normalise_images(inspection.model_input)), names)


@find_queries.register
def _find_object_queries(model: Detector, inspection: ImageInspection) -> ImageQueries:
    (detections,) = inspection.loaded.check_task("detect").detect(model, inspection.model_input)
    count = max(int((detections.scores >= MIN_SCORE).sum()), MIN_BOXES)
    corners = detections.corners / np.array([inspection.pixels.width, inspection.pixels.height] * 2)
    rows = list(zip(detections.queries.tolist(), detections.labels, detections.scores, corners.tolist(), strict=True))
    rows = rows[:count]
    names = {slot: f"{label} {score:.2f}" for slot, label, score, _ in rows}
    boxes: dict[int, tuple[Box, ...]] = {slot: ((x0, y0, x1, y1),) for slot, _, _, (x0, y0, x1, y1) in rows}
    return ImageQueries(lambda: model(inspection.pixels.normalise_images(inspection.model_input)), names, boxes)


@find_queries.register
def _find_words(model: EncoderDecoder, inspection: ImageInspection) -> ImageQueries:
    pixels, tokeniser = inspection.pixels.normalise_images(inspection.model_input), inspection.loaded.tokenisers.target
    hypotheses = decode(model, list(pixels), inspection.loaded.build_decode_config(), get_device(model), tokeniser)
    ids = [*hypotheses[0][0].ids, EOS][:MAX_QUERIES]
    inputs = torch.tensor([[model.start_id, *ids[:-1]]], device=get_device(model))
    return ImageQueries(lambda: model(pixels, inputs), dict(enumerate(tokeniser.tokens(ids))))
