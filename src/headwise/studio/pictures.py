"""One image through a model: its prediction, and the attention maps over the image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headwise.errors import UserError
from headwise.inspect.image_maps import Gaze, gazes
from headwise.inspect.image_page import page, picture
from headwise.inspect.image_queries import Asked, asked
from headwise.inspect.image_views import rolled
from headwise.inspect.panels import borders
from headwise.inspect.scene import Scene
from headwise.inspect.svg import visible
from headwise.studio.binary_response import BinaryResponse
from headwise.vision.decode import load_upright, open_image, translate_errors

if TYPE_CHECKING:
    from PIL.Image import Image

    from headwise.inference.trained_model import TrainedModel

MAX_LABELS = 12  # most probable classes that are sent


@dataclass(frozen=True, eq=False)
class ImageMaps:
    """What stays on the server: the attention maps over the image, and the queries that are not patches."""

    gazes: Sequence[Gaze]
    queries: Asked

    def pack_map(self, number: int, row: int = -1, column: int = -1, query: int = -1) -> bytes:
        """The attention of all heads of one layer over the image, (H, h, w): from a patch, from a query outside the
        image, or else from the class tokens or the mean of all."""
        if not 0 <= number < len(self.gazes):
            raise UserError(f"there is no layer {number + 1} with attention over the image")
        gaze = replace(self.gazes[number])  # a copy, so that full maps of windows are not cached on it
        response = BinaryResponse()
        if query >= 0:
            if gaze.asks is not None or gaze.by_marks or query not in self.queries.names:
                raise UserError(f"there is no query {query + 1} in layer {number + 1}")
            weights = gaze.weights[0, :, query, gaze.class_tokens :].unflatten(-1, gaze.seen)
        else:
            patch = (row, column) if row >= 0 and column >= 0 else None
            if patch and (gaze.asks is None or row >= gaze.asks[0] or column >= gaze.asks[1]):
                raise UserError(f"there is no patch in row {row + 1}, column {column + 1} of layer {number + 1}")
            weights = gaze.heat(patch)[0]
        return response.to_bytes({"layer": number, "weights": response.add(weights.float().cpu().numpy())})

    def describe_layers(self) -> list[dict[str, Any]]:
        """Heads, grids and queries of each layer."""
        return [self._describe_layer(gaze) for gaze in self.gazes]

    def _describe_layer(self, gaze: Gaze) -> dict[str, Any]:
        has_queries = gaze.asks is None and not gaze.by_marks
        queries = {number: visible(name) for number, name in self.queries.names.items()} if has_queries else {}
        return {
            "heads": gaze.cells.shape[1],
            "query_grid": gaze.asks,
            "key_grid": gaze.seen,
            "class_tokens": 0 if has_queries else gaze.class_tokens,
            "queries": [
                {"number": number, "name": name, "boxes": self.queries.boxes.get(number, ())}
                for number, name in queries.items()
            ],
            "window_borders": [] if gaze.tiling is None else borders(gaze.tiling),
        }


def inspect_image(trained: TrainedModel, content: bytes) -> tuple[ImageMaps, dict[str, Any], BinaryResponse]:
    """The attention maps, the header of the response, and the response with its arrays."""
    scene = load_scene(trained, content)
    queries = asked(scene.model, scene)
    maps, response = ImageMaps(gazes(scene.model, queries.call), queries), BinaryResponse()
    try:
        rollout = response.add(compute_rollout(scene))
    except UserError:  # rollout needs self-attention between patches
        rollout = None
    details = {
        "image": picture(scene),
        "layers": maps.describe_layers(),
        "rollout": rollout,
        **describe_prediction(trained, scene.whole, queries),
    }
    return maps, details, response


def render_page(trained: TrainedModel, content: bytes, title: str) -> str:
    """A stand-alone HTML page of the image and its maps."""
    return page(load_scene(trained, content), title)


def load_scene(trained: TrainedModel, content: bytes) -> Scene:
    """Decode the image and combine it with the model; images that are damaged or too large are refused."""
    with translate_errors("image"):
        image = load_upright(open_image(content))
        image.load()
    scene = Scene(trained, image)
    assert scene.pixels  # raises for a run that reads texts
    return scene


def describe_prediction(trained: TrainedModel, image: Image, queries: Asked) -> dict[str, Any]:
    """The model's prediction: classes with probabilities, detected objects, or a caption."""
    description = trained.describe_image(image)
    best = sorted(description.probabilities.items(), key=lambda item: -item[1])[:MAX_LABELS]
    prediction: dict[str, Any] = {
        "labels": [[visible(label), round(value, 6)] for label, value in best],
        "classes": len(description.probabilities),
    }
    if not best:
        prediction["text"] = visible(description.sentence or ", ".join(queries.names.values()))
    return prediction


def compute_rollout(scene: Scene) -> NDArray[np.floating]:
    """Attention rollout of the class tokens, or the mean over all patches: (h, w)."""
    return np.array(rolled(scene).to_json()["maps"][0]["weights"])
