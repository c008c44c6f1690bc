"""Views of an image model by name: of its weights, of held-out images, or of one image."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch

from headwise.errors import UserError, nearest
from headwise.inspect import patches
from headwise.inspect.distance import measure_distances
from headwise.inspect.frequency import measure_by_frequency
from headwise.inspect.image_inspection import ImageInspection
from headwise.inspect.image_queries import find_queries
from headwise.inspect.panels import HeatMap
from headwise.inspect.rollout import compute_rollout
from headwise.models.detector import Detector
from headwise.models.encoder_decoder import EncoderDecoder


class ViewResult(Protocol):
    """The result of a view: JSON, a table, a picture."""

    def to_json(self) -> dict[str, Any]: ...

    def table(self) -> str:
        """The numbers as a text table; empty if there are too many."""
        ...

    def save(self, out: Path, title: str) -> Path:
        """Save the picture as .svg or .png."""
        ...


def show_filters(inspection: ImageInspection) -> ViewResult:
    """Show the principal components of the patch embedding's filters."""
    assert inspection.pixels
    return patches.build_filter_sheet(patches.compute_components(patches.get_patch_filters(inspection.model)))


def show_positions(inspection: ImageInspection) -> ViewResult:
    """Show the cosine similarity of position embeddings, or the relative position biases."""
    pixels, embedding = inspection.pixels, patches.find_position_embedding(inspection.model)
    if embedding is not None:
        blank = torch.zeros(1, pixels.channels, pixels.height, pixels.width)
        vectors, grid = patches.compute_position_vectors(inspection.model, embedding, blank)
        return patches.build_position_sheet(patches.compute_similarities(vectors), grid)
    if biases := patches.get_relative_biases(inspection.model):
        return patches.build_bias_sheet(biases)
    raise UserError("--view positions: this model learns no positions of patches; use another view")


def show_distance(inspection: ImageInspection) -> ViewResult:
    """Show the mean attention distance of each head, in one image or in held-out ones."""
    images = inspection.sample_held_out() if inspection.source is None else inspection.model_input
    return measure_distances(inspection.model, images, inspection.pixels.normalise_images)


def show_rollout(inspection: ImageInspection) -> ViewResult:
    """Show attention rollout of the class tokens, of one patch, or averaged over all tokens."""
    rollout, first, last = compute_rollout(inspection.attentions), inspection.attentions[0], inspection.attentions[-1]
    grid, patch = last.query_grid or last.key_grid, inspection.locate_query(last.query_grid)
    class_tokens = len(rollout) - prod(grid)
    if patch is None:
        rows = rollout[: class_tokens or None]
    else:
        rows = rollout[class_tokens + patch[0] * grid[1] + patch[1]][None]
    weights = rows.mean(0).view(first.key_grid)  # (N,) -> (h, w)
    # residuals keep half of each layer, so that all weights are similar: the colour scale begins at the smallest
    heat_map = HeatMap("rollout", weights, boxes=inspection.frame_query(last), relative=True)
    return inspection.build_sheet([heat_map], f"attention rollout {inspection.describe_query(last)}")


def show_layers(inspection: ImageInspection) -> ViewResult:
    """Show each layer: one head, or the mean of all."""
    maps = [
        HeatMap(
            f"layer {number}",
            inspection.reduce_heads(attention.heat_map(inspection.locate_query(attention.query_grid))[0]),
            attention.partition,
            inspection.frame_query(attention),
        )
        for number, attention in inspection.select_layers(inspection.attentions).items()
    ]
    query = inspection.describe_query(inspection.attentions[-1])
    return inspection.build_sheet(maps, f"attention {query}, {inspection.head_name}")


def show_heads(inspection: ImageInspection) -> ViewResult:
    """Show each head of all layers, or of one."""
    layers = inspection.select_layers(inspection.attentions)
    columns = max(attention.recorded.shape[1] for attention in layers.values())
    maps: list[HeatMap | None] = []
    for number, attention in layers.items():
        heads = attention.heat_map(inspection.locate_query(attention.query_grid))[0]  # (H, h, w)
        boxes = inspection.frame_query(attention)
        maps += [HeatMap(f"{number}.{n}", head, attention.partition, boxes) for n, head in enumerate(heads, 1)]
        maps += [None] * (columns - len(heads))
    query = inspection.describe_query(inspection.attentions[-1])
    return inspection.build_sheet(maps, f"attention {query}; layer.head", columns if len(layers) > 1 else 0)


def show_queries(inspection: ImageInspection) -> ViewResult:
    """Show the cross-attention of each latent, object query or word."""
    queries = find_queries(inspection.model, inspection)
    attentions = queries.record_attention(inspection.model)
    number, attention = list(inspection.select_layers(attentions).items())[-1]
    weights = inspection.reduce_heads(attention.weights[0])[:, attention.class_tokens :]
    weights = weights.unflatten(1, attention.key_grid)  # (Q, T) -> (Q, h, w)
    maps = [HeatMap(name, weights[query], boxes=queries.boxes.get(query, ())) for query, name in queries.names.items()]
    note = f"cross-attention {number} of {len(attentions)} to the image, {inspection.head_name}"
    return inspection.build_sheet(maps, note)


def show_frequency(inspection: ImageInspection) -> ViewResult:
    """Show the accuracy on held-out images of which only low, or only high frequencies are left."""
    return measure_by_frequency(
        inspection.loaded.check_task("classify-images"), inspection.model, inspection.loaded.held_out()
    )


def choose_default_view(model: Any) -> str:
    """Choose the view for a model: its queries if it has some that are not patches, else rollout."""
    cross = isinstance(model, Detector | EncoderDecoder) or hasattr(model.encoder, "latents")
    return "queries" if cross else "rollout"


class View(NamedTuple):
    show: Callable[[ImageInspection], ViewResult]
    options: frozenset[str]  # fields of the inspection that it uses, beside the run


VIEWS = {
    name: View(show, frozenset(options.split()))
    for name, show, options in (
        ("filters", show_filters, ""),
        ("positions", show_positions, ""),
        ("distance", show_distance, "source"),
        ("frequency", show_frequency, ""),
        ("rollout", show_rollout, "source at"),
        ("layers", show_layers, "source layer head at"),
        ("heads", show_heads, "source layer at"),
        ("queries", show_queries, "source layer head"),
    )
}
OPTION_NAMES = {"source": "the image", "layer": "--layer", "head": "--head", "at": "--at"}


def show(view: str, inspection: ImageInspection) -> ViewResult:
    """Show one view; options that it does not use are refused."""
    if view not in VIEWS:
        raise UserError(f"--view {view}: is of texts, and this run reads images; {nearest(view, tuple(VIEWS))}")
    for field, option in OPTION_NAMES.items():
        if field not in VIEWS[view].options and getattr(inspection, field) is not None:
            raise UserError(f"--view {view}: has nothing to do with {option}; leave that out")
    return VIEWS[view].show(inspection)
