"""One image through a model that reads images: what it says, and what each attention looks at."""

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
from headwise.studio.binary_response import Pack
from headwise.vision.decode import decoding, opened, shown

if TYPE_CHECKING:
    from PIL.Image import Image

    from headwise.inference.trained_model import TrainedModel

SURE = 12  # labels that are told


@dataclass(frozen=True, eq=False)
class Picture:
    """What stays on the server: attentions at the image, and who asks beside its patches."""

    gazes: Sequence[Gaze]
    those: Asked

    def heat(self, number: int, row: int = -1, column: int = -1, query: int = -1) -> bytes:
        """Where one layer looks, all heads: what a patch asks, or a query from outside, or else the class tokens or the
        mean of all. As bytes of (H, h, w)."""
        if not 0 <= number < len(self.gazes):
            raise UserError(f"there is no layer {number + 1} that looks at the image")
        gaze = replace(self.gazes[number])  # a copy: whole maps of windows are not kept
        pack = Pack()
        if query >= 0:
            if gaze.asks is not None or gaze.by_marks or query not in self.those.names:
                raise UserError(f"there is no query {query + 1} in layer {number + 1}")
            found = gaze.weights[0, :, query, gaze.class_tokens :].unflatten(-1, gaze.seen)
        else:
            place = (row, column) if row >= 0 and column >= 0 else None
            if place and (gaze.asks is None or row >= gaze.asks[0] or column >= gaze.asks[1]):
                raise UserError(f"there is no patch {row + 1}, {column + 1} that asks in layer {number + 1}")
            found = gaze.heat(place)[0]
        return pack.bytes({"layer": number, "weights": pack.add(found.float().cpu().numpy())})

    def layers(self) -> list[dict[str, Any]]:
        """What there is to choose from."""
        return [self._layer(gaze) for gaze in self.gazes]

    def _layer(self, gaze: Gaze) -> dict[str, Any]:
        outside = gaze.asks is None and not gaze.by_marks
        queries = {number: visible(name) for number, name in self.those.names.items()} if outside else {}
        return {
            "heads": gaze.cells.shape[1],
            "asks": gaze.asks,
            "seen": gaze.seen,
            "class_tokens": 0 if outside else gaze.class_tokens,
            "queries": [
                {"number": number, "name": name, "boxes": self.those.boxes.get(number, ())}
                for number, name in queries.items()
            ],
            "lines": [] if gaze.tiling is None else borders(gaze.tiling),
        }


def pictured(loaded: TrainedModel, content: bytes) -> tuple[Picture, dict[str, Any], Pack]:
    """The looks, what the page is told of them, and the arrays that go with it."""
    scene = staged(loaded, content)
    those = asked(scene.model, scene)
    found, pack = Picture(gazes(scene.model, those.call), those), Pack()
    try:
        rollout = pack.add(rolled_weights(scene))
    except UserError:  # where others than patches ask, or nobody does
        rollout = None
    about = {"image": picture(scene), "layers": found.layers(), "rollout": rollout, **said(loaded, scene.whole, those)}
    return found, about, pack


def paged(loaded: TrainedModel, content: bytes, title: str) -> str:
    """The same as a page by itself."""
    return page(staged(loaded, content), title)


def staged(loaded: TrainedModel, content: bytes) -> Scene:
    """A run and the image in these bytes; what cannot be decoded, or is larger than it may be, is refused."""
    with decoding("image"):
        image = shown(opened(content))
        image.load()
    scene = Scene(loaded, image)
    assert scene.pixels  # refuses a run that reads texts
    return scene


def said(loaded: TrainedModel, image: Image, those: Asked) -> dict[str, Any]:
    """What the model makes of the image: labels with probabilities, what it found, or a sentence."""
    about = loaded.describe_image(image)
    best = sorted(about.probabilities.items(), key=lambda item: -item[1])[:SURE]
    told = {"labels": [[visible(label), round(value, 6)] for label, value in best], "of": len(about.probabilities)}
    if best:
        return told
    return {**told, "sentence": visible(about.sentence or ", ".join(those.names.values()))}


def rolled_weights(scene: Scene) -> NDArray[np.floating]:
    """Attention rollout of the class tokens, or of all patches on average: (h, w)."""
    return np.array(rolled(scene).to_json()["maps"][0]["weights"])
