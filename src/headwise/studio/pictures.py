"""One image through a model: its prediction, and the attention maps over the image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headwise.errors import UserError
from headwise.inspect import image_page
from headwise.inspect.image_inspection import ImageInspection
from headwise.inspect.image_maps import ImageAttention, record_image_attention
from headwise.inspect.image_queries import ImageQueries, find_queries
from headwise.inspect.image_views import show_rollout
from headwise.inspect.panels import compute_window_borders
from headwise.inspect.svg import replace_controls
from headwise.studio.binary_response import BinaryResponse
from headwise.vision.decode import load_upright, open_image, translate_errors

if TYPE_CHECKING:
    from PIL.Image import Image

    from headwise.inference.trained_model import TrainedModel

MAX_LABELS = 12  # most probable classes that are sent


@dataclass(frozen=True, eq=False)
class ImageMaps:
    """What stays on the server: the attention maps over the image, and the queries that are not patches."""

    attentions: Sequence[ImageAttention]
    queries: ImageQueries

    def pack_map(self, number: int, row: int = -1, column: int = -1, query: int = -1) -> bytes:
        """The attention of all heads of one layer over the image, (H, h, w): from a patch, from a query outside the
        image, or else from the class tokens or the mean of all."""
        if not 0 <= number < len(self.attentions):
            raise UserError(f"there is no layer {number + 1} with attention over the image")
        attention = self.attentions[number]
        response = BinaryResponse()
        if query >= 0:
            if not attention.is_cross_attention or query not in self.queries.names:
                raise UserError(f"there is no query {query + 1} in layer {number + 1}")
            weights = attention.weights[0, :, query, attention.class_tokens :].unflatten(-1, attention.key_grid)
        else:
            patch = (row, column) if row >= 0 and column >= 0 else None
            grid = attention.query_grid
            if patch and (grid is None or row >= grid[0] or column >= grid[1]):
                raise UserError(f"there is no patch in row {row + 1}, column {column + 1} of layer {number + 1}")
            weights = attention.heat_map(patch)[0]
        return response.to_bytes({"layer": number, "weights": response.add(weights.float().cpu().numpy())})

    def describe_layers(self) -> list[dict[str, Any]]:
        """Heads, grids and queries of each layer."""
        return [self._describe_layer(attention) for attention in self.attentions]

    def _describe_layer(self, attention: ImageAttention) -> dict[str, Any]:
        cross = attention.is_cross_attention
        queries = {number: replace_controls(name) for number, name in self.queries.names.items()} if cross else {}
        return {
            "heads": attention.recorded.shape[1],
            "query_grid": attention.query_grid,
            "key_grid": attention.key_grid,
            "class_tokens": 0 if cross else attention.class_tokens,
            "queries": [
                {"number": number, "name": name, "boxes": self.queries.boxes.get(number, ())}
                for number, name in queries.items()
            ],
            "window_borders": [] if attention.partition is None else compute_window_borders(attention.partition),
        }


def inspect_image(trained: TrainedModel, content: bytes) -> tuple[ImageMaps, dict[str, Any], BinaryResponse]:
    """The attention maps, the header of the response, and the response with its arrays."""
    inspection = prepare_inspection(trained, content)
    queries = find_queries(inspection.model, inspection)
    maps, response = ImageMaps(record_image_attention(inspection.model, queries.call), queries), BinaryResponse()
    try:
        rollout = response.add(compute_rollout(inspection))
    except UserError:  # rollout needs self-attention between patches
        rollout = None
    details = {
        "image": image_page.encode_image(inspection),
        "layers": maps.describe_layers(),
        "rollout": rollout,
        **describe_prediction(trained, inspection.full_image, queries),
    }
    return maps, details, response


def render_page(trained: TrainedModel, content: bytes, title: str) -> str:
    """A stand-alone HTML page of the image and its maps."""
    return image_page.render_page(prepare_inspection(trained, content), title)


def prepare_inspection(trained: TrainedModel, content: bytes) -> ImageInspection:
    """Decode the image and combine it with the model; images that are damaged or too large are refused."""
    with translate_errors("image"):
        image = load_upright(open_image(content))
        image.load()
    inspection = ImageInspection(trained, image)
    assert inspection.pixels  # raises for a run that reads texts
    return inspection


def describe_prediction(trained: TrainedModel, image: Image, queries: ImageQueries) -> dict[str, Any]:
    """The model's prediction: classes with probabilities, detected objects, or a caption."""
    description = trained.describe_image(image)
    best = sorted(description.probabilities.items(), key=lambda item: -item[1])[:MAX_LABELS]
    prediction: dict[str, Any] = {
        "labels": [[replace_controls(label), round(value, 6)] for label, value in best],
        "classes": len(description.probabilities),
    }
    if not best:
        prediction["text"] = replace_controls(description.sentence or ", ".join(queries.names.values()))
    return prediction


def compute_rollout(inspection: ImageInspection) -> NDArray[np.floating]:
    """Attention rollout of the class tokens, or the mean over all patches: (h, w)."""
    return np.array(show_rollout(inspection).to_json()["maps"][0]["weights"])
