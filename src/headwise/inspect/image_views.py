"""What can be looked at in a run that reads images, by name: of its weights, of held-out images, or of one image."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch

from headwise.errors import UserError, nearest
from headwise.inspect import patches
from headwise.inspect.distance import distances
from headwise.inspect.frequency import by_frequency
from headwise.inspect.image_queries import asked
from headwise.inspect.panels import Heat
from headwise.inspect.rollout import rollout
from headwise.inspect.scene import Scene
from headwise.models.detector import Detector
from headwise.models.encoder_decoder import EncoderDecoder


class Shown(Protocol):
    """What a view makes."""

    def to_json(self) -> dict[str, Any]: ...

    def table(self) -> str:
        """The numbers in lines; nothing where they are too many."""
        ...

    def save(self, out: Path, title: str) -> Path:
        """The picture, as .svg or .png."""
        ...


def filters(scene: Scene) -> Shown:
    """The first weights, by principal components."""
    assert scene.pixels
    return patches.filter_sheet(patches.components(patches.kernels(scene.model)))


def positions(scene: Scene) -> Shown:
    """How alike the positions of patches are; or the scores of offsets, where positions are relative."""
    pixels, added = scene.pixels, patches.added_by(scene.model)
    if added is not None:
        blank = torch.zeros(1, pixels.channels, pixels.height, pixels.width)
        vectors, grid = patches.places(scene.model, added, blank)
        return patches.position_sheet(patches.similarities(vectors), grid)
    if tables := patches.offsets(scene.model):
        return patches.offset_sheet(tables)
    raise UserError("--view positions: this model learns no positions of patches; use another view")


def distance(scene: Scene) -> Shown:
    """How far each head looks: in one image, or in held-out ones."""
    images = scene.others() if scene.source is None else scene.read
    return distances(scene.model, images, scene.pixels.normalise_images)


def rolled(scene: Scene) -> Shown:
    """What the class token, or all tokens on average, hold of each patch after all layers."""
    held, first, last = rollout(scene.gazes), scene.gazes[0], scene.gazes[-1]
    grid, place = last.asks or last.seen, scene.asker(last.asks)
    class_tokens = len(held) - prod(grid)
    rows = held[: class_tokens or None] if place is None else held[class_tokens + place[0] * grid[1] + place[1]][None]
    # half of every layer is a residual, so tokens hold nearly as much of any patch: what differs is drawn
    heat = Heat("rollout", rows.mean(0).view(first.seen), boxes=scene.frames(last), relative=True)  # (N,) -> (h, w)
    return scene.sheet([heat], f"attention rollout {scene.asks(last)}")


def layers(scene: Scene) -> Shown:
    """Every layer: one head, or the mean of all."""
    heats = [
        Heat(f"layer {number}", scene.of_heads(gaze.heat(scene.asker(gaze.asks))[0]), gaze.tiling, scene.frames(gaze))
        for number, gaze in scene.numbered(scene.gazes).items()
    ]
    return scene.sheet(heats, f"attention {scene.asks(scene.gazes[-1])}, {scene.which}")


def heads(scene: Scene) -> Shown:
    """Every head of every layer, or of one."""
    chosen = scene.numbered(scene.gazes)
    most = max(gaze.cells.shape[1] for gaze in chosen.values())
    heats: list[Heat | None] = []
    for number, gaze in chosen.items():
        own = gaze.heat(scene.asker(gaze.asks))[0]  # (H, h, w)
        frames = scene.frames(gaze)
        heats += [Heat(f"{number}.{head}", each, gaze.tiling, frames) for head, each in enumerate(own, 1)]
        heats += [None] * (most - len(own))
    return scene.sheet(heats, f"attention {scene.asks(scene.gazes[-1])}; layer.head", most if len(chosen) > 1 else 0)


def queries(scene: Scene) -> Shown:
    """Each latent, slot or word: where it looks."""
    those = asked(scene.model, scene)
    found = those.gazes(scene.model)
    number, gaze = list(scene.numbered(found).items())[-1]
    weights = scene.of_heads(gaze.weights[0])[:, gaze.class_tokens :].unflatten(1, gaze.seen)  # (Q, T) -> (Q, h, w)
    heats = [Heat(name, weights[query], boxes=those.boxes.get(query, ())) for query, name in those.names.items()]
    return scene.sheet(heats, f"look {number} of {len(found)} at the image, {scene.which}")


def frequency(scene: Scene) -> Shown:
    """How many held-out images are recognised from their low, and from their high frequencies alone."""
    return by_frequency(scene.loaded.check_task("classify-images"), scene.model, scene.loaded.held_out())


def usual(model: Any) -> str:
    """The view that says most of a model."""
    outside = isinstance(model, Detector | EncoderDecoder) or hasattr(model.encoder, "latents")
    return "queries" if outside else "rollout"


class View(NamedTuple):
    make: Callable[[Scene], Shown]
    heeds: frozenset[str]  # what of a scene it heeds, beside the run


VIEWS = {
    name: View(make, frozenset(heeds.split()))
    for name, make, heeds in (
        ("filters", filters, ""),
        ("positions", positions, ""),
        ("distance", distance, "source"),
        ("frequency", frequency, ""),
        ("rollout", rolled, "source at"),
        ("layers", layers, "source layer head at"),
        ("heads", heads, "source layer at"),
        ("queries", queries, "source layer head"),
    )
}
SAID = {"source": "the image", "layer": "--layer", "head": "--head", "at": "--at"}


def show(view: str, scene: Scene) -> Shown:
    """One view; refuses what it would not heed."""
    if view not in VIEWS:
        raise UserError(f"--view {view}: is of texts, and this run reads images; {nearest(view, tuple(VIEWS))}")
    for name, said in SAID.items():
        if name not in VIEWS[view].heeds and getattr(scene, name) is not None:
            raise UserError(f"--view {view}: has nothing to do with {said}; leave that out")
    return VIEWS[view].make(scene)
