"""A self-contained HTML page of one folded chain: no network, opens from a file."""

from __future__ import annotations

import re
from base64 import b64encode
from html import escape
from importlib import resources
from typing import Any

import numpy as np

from headwise.inspect.fold_attention import KINDS, FoldAttention
from headwise.inspect.fold_inspection import FoldInspection
from headwise.inspect.fold_views import (
    WORST,
    AttentionChoice,
    get_true_trace,
    list_distance_maps,
    name_tokens,
    round_values,
    show_confidence,
    show_layers,
    show_states,
    show_torsions,
)
from headwise.inspect.page import UNITS, dump_json
from headwise.inspect.pair_maps import PairMap
from headwise.inspect.svg import Drawing, replace_controls
from headwise.inspect.traces import find_axes

MAX_WEIGHTS = 3_000_000  # more make a browser slow; then only the means over lines are written


def render_page(inspection: FoldInspection, title: str) -> str:
    """Render the page as one HTML document: structure, maps of pairs, confidence and attention."""
    folder = resources.files("headwise.inspect")
    slots = {
        "TITLE": escape(replace_controls(title)),
        "DATA": dump_json(build_page_data(inspection, title)),
        "TRACE": folder.joinpath("trace.js").read_text("utf-8"),
    }
    # one pass, so that a title which happens to read {{DATA}} stays a title
    template = folder.joinpath("fold_page.html").read_text("utf-8")
    return re.sub(r"\{\{(TITLE|DATA|TRACE)\}\}", lambda match: slots[match[1]], template)


def build_page_data(inspection: FoldInspection, title: str) -> dict[str, Any]:
    """Build the data of the page's script."""
    trace, true_trace = orient_traces(inspection)
    return {
        "title": replace_controls(title),
        "sequence": inspection.sequence,
        "scores": {name: round(value, 4) for name, value in inspection.scores.items()},
        "confidence_name": inspection.pictures.confidence_name,
        "confidence": round_values(inspection.confidence, 2),
        "trace": trace,
        "true_trace": true_trace,
        "maps": [map_to_dict(each) for each in list_maps(inspection)],
        "units": UNITS,
        "attention": [attention_to_dict(inspection, each) for each in inspection.pictures.attention.values()],
        "figures": list_figures(inspection),
    }


Points = list[list[float] | None]  # None where one is not known


def orient_traces(inspection: FoldInspection) -> tuple[Points, Points | None]:
    """Cα of the predicted and of the true structure, (L, 3), along the principal axes of the prediction, so that it is
    first seen from its broad side."""
    points, true = inspection.structure.get_atoms("CA")[0].numpy(), get_true_trace(inspection)
    axes, centre = find_axes(points), points.mean(0)
    predicted, known = (None if each is None else list_points((each - centre) @ axes) for each in (points, true))
    assert predicted is not None
    return predicted, known


def list_points(points: np.ndarray) -> Points:
    return [None if np.isnan(point).any() else point.round(3).tolist() for point in points]


def list_maps(inspection: FoldInspection) -> list[PairMap]:
    """All maps of pairs: distances, contacts and aligned errors."""
    maps = list_distance_maps(inspection)
    pae, true = inspection.pictures.aligned_error, inspection.true
    if pae is not None:
        maps.append(PairMap("predicted aligned error", pae, 0.0, WORST, "Å", True))
    if true is not None:
        maps.append(PairMap("true aligned error", true.aligned_error, 0.0, WORST, "Å", True))
    return maps


def map_to_dict(each: PairMap) -> dict[str, Any]:
    return {
        "name": each.name,
        "low": each.low,
        "high": each.high,
        "unit": each.unit,
        "small_is_dark": each.small_is_dark,
        "values": round_values(each.values, 2 if each.unit else 3),
    }


def attention_to_dict(inspection: FoldInspection, attention: FoldAttention) -> dict[str, Any]:
    """Convert one kind for the page: of each layer the mean over lines, and all lines unless they are too many."""
    kind, count = KINDS[attention.kind], sum(layer.size for layer in attention.layers)
    whole = count <= MAX_WEIGHTS and attention.lines > 1
    return {
        "name": attention.kind,
        "title": kind.title,
        "line": kind.line if whole else "",
        "tokens": [replace_controls(name) for name in name_tokens(inspection, attention)],
        "means": to_units(attention.stack_means()),
        "lines": [to_units(layer) for layer in attention.layers] if whole else [],
    }


def to_units(weights: np.ndarray) -> list[Any]:
    """Weights as integers of four decimals: half the bytes of floats."""
    result: list[Any] = np.rint(weights.astype(float) * UNITS).astype(int).tolist()
    return result


def list_figures(inspection: FoldInspection) -> list[dict[str, str]]:
    """Drawings of the page that do not move: confidence, layers of the structure module; of AlphaFold 1 its heads."""
    pictures, choice = inspection.pictures, AttentionChoice()
    views = [("Confidence along the chain", show_confidence)]
    views += [("After each layer of the structure module", show_layers)] if pictures.layers is not None else []
    views += [("Torsions", show_torsions)] if pictures.torsions is not None else []
    views += [("Secondary structure", show_states)] if pictures.states else []
    return [{"name": name, "source": encode_svg(view(inspection, choice).draw(name))} for name, view in views]


def encode_svg(drawing: Drawing) -> str:
    """A drawing as a data URL."""
    return f"data:image/svg+xml;base64,{b64encode(drawing.to_svg().encode()).decode()}"
