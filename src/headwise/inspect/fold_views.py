"""Views of a folded chain by name: distances, confidence, errors, structure, attention, torsions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from headwise.errors import UserError, nearest
from headwise.inspect import colour
from headwise.inspect.files import save
from headwise.inspect.fold_attention import KINDS, MAIN, FoldAttention
from headwise.inspect.fold_inspection import FoldInspection, Values
from headwise.inspect.pair_maps import PairMap, draw_pair_maps
from headwise.inspect.pictures import draw_alignment
from headwise.inspect.secondary import Track, draw_secondary
from headwise.inspect.svg import Drawing
from headwise.inspect.torsion_maps import draw_torsions
from headwise.inspect.traces import draw_confidence, draw_layers, draw_traces

FARTHEST, WORST = 22.0, 32.0  # Å; ends of the colour scales of distances and of errors
NO_ATTENTION = "this run's model has no attention to look at; use another view"


@dataclass(frozen=True)
class AttentionChoice:
    """Which attention is drawn; numbers from 1, None: the last layer, the mean of heads or of lines."""

    kind: str | None = None
    layer: int | None = None
    head: int | None = None
    line: int | None = None


@dataclass(frozen=True, eq=False)
class FoldView:
    """The result of a view: numbers, a text, and a picture for a title."""

    draw: Callable[[str], Drawing]
    numbers: dict[str, Any]
    text: str = ""

    def to_json(self) -> dict[str, Any]:
        return self.numbers

    def table(self) -> str:
        return self.text

    def save(self, out: Path, title: str) -> Path:
        return save(self.draw(title), out)


def show_distances(inspection: FoldInspection, choice: AttentionChoice) -> FoldView:
    """Show predicted and true distances, and contacts."""
    maps = list_distance_maps(inspection)
    note = "distances of Cβ; framed: pairs in contact, six or more residues apart"
    if inspection.true is None:
        note = "distances of Cβ; the true structure is not known"
    numbers = {each.name: round_values(each.values, 2) for each in maps}
    return FoldView(lambda title: draw_pair_maps(maps, title, note), numbers, describe_scores(inspection))


def list_distance_maps(inspection: FoldInspection) -> list[PairMap]:
    """The distogram's expected distances, the structure's, the true ones, and contacts: predicted probabilities above
    the diagonal, true contacts below."""
    pictures, true = inspection.pictures, inspection.true
    apart = np.abs(np.subtract.outer(*[np.arange(len(inspection.sequence))] * 2)) >= 6
    marks = None if true is None else true.contacts & apart
    distances = [
        ("expected distance", pictures.distances),
        ("distance in the structure", measure_distances(inspection)),
    ]
    distances += [] if true is None else [("true distance", true.distances)]
    contacts = np.triu(pictures.contacts) if true is None else np.triu(pictures.contacts) + np.tril(true.contacts, -1)
    name = "contact probability" if true is None else "contacts: predicted above, true below"
    near = [PairMap(label, values, 0.0, FARTHEST, "Å", True, marks) for label, values in distances]
    return [*near, PairMap(name, contacts.astype(float), 0.0, 1.0)]


def measure_distances(inspection: FoldInspection) -> Values:
    """Distances of Cβ in the predicted structure, (L, L)."""
    beta, _ = inspection.structure.beta
    return np.linalg.norm(beta.numpy()[:, None] - beta.numpy(), axis=-1)


def describe_scores(inspection: FoldInspection) -> str:
    """Metrics of the structure in a line; empty where the truth is not known."""
    return "  ".join(f"{name} {value:.3g}" for name, value in inspection.scores.items())


def show_confidence(inspection: FoldInspection, choice: AttentionChoice) -> FoldView:
    """Show the confidence of each residue beside its true lDDT."""
    pictures, true = inspection.pictures, inspection.true
    numbers = {pictures.confidence_name: round_values(inspection.confidence, 2)}
    numbers |= {} if true is None else {"lDDT-Cα": round_values(true.lddt, 2)}
    values = (inspection.sequence, inspection.confidence, None if true is None else true.lddt)
    return FoldView(
        lambda title: draw_confidence(*values, title, pictures.confidence_name), numbers, describe_scores(inspection)
    )


def show_errors(inspection: FoldInspection, choice: AttentionChoice) -> FoldView:
    """Show the predicted aligned error beside the true one."""
    pae, true = inspection.pictures.aligned_error, inspection.true
    if pae is None:
        raise UserError(
            "--view errors: this run learnt no predicted aligned error; train with task.weights.aligned_error = 0.1, "
            "or use another view"
        )
    maps = [PairMap("predicted aligned error", pae, 0.0, WORST, "Å", True)]
    maps += [] if true is None else [PairMap("true aligned error", true.aligned_error, 0.0, WORST, "Å", True)]
    note = "error of residue j (across) where the frames of residue i (down) are superimposed"
    numbers = {each.name: round_values(each.values, 2) for each in maps}
    return FoldView(lambda title: draw_pair_maps(maps, title, note), numbers)


def show_structure(inspection: FoldInspection, choice: AttentionChoice) -> FoldView:
    """Show the trace of Cα, coloured by confidence, over the true one."""
    pictures, true = inspection.pictures, inspection.true
    points = inspection.structure.get_atoms("CA")[0].numpy()
    known = None if true is None else get_true_trace(inspection)
    colours = [colour.pick_confidence_colour(value) for value in inspection.confidence]
    bands = f"coloured by {pictures.confidence_name}: 90 and more dark blue, 70 light blue, 50 yellow, below orange"
    notes = (bands, *(() if true is None else ("grey: the true structure, superimposed",)))
    numbers = {"predicted": round_values(points, 3)}
    numbers |= {} if known is None else {"true": round_values(known, 3)}
    return FoldView(
        lambda title: draw_traces(points, colours, known, title, notes), numbers, describe_scores(inspection)
    )


def get_true_trace(inspection: FoldInspection) -> Values | None:
    """Cα of the true structure, superimposed on the prediction, (L, 3); NaN where it is not known."""
    if inspection.true is None:
        return None
    points, known = inspection.true.structure.get_atoms("CA")
    return np.where(known.numpy()[:, None], points.numpy(), np.nan)


def show_layers(inspection: FoldInspection, choice: AttentionChoice) -> FoldView:
    """Show the trace after each layer of the structure module."""
    layers = inspection.pictures.layers
    if layers is None:
        raise UserError("--view layers: this run's model has no structure module; use --view structure")
    known = get_true_trace(inspection)
    return FoldView(lambda title: draw_layers(layers, known, title), {"layers": round_values(layers, 3)})


def get_attention(inspection: FoldInspection, choice: AttentionChoice) -> FoldAttention:
    """The chosen kind of attention; a layer, head or line that does not exist is refused."""
    kinds = inspection.pictures.attention
    if not kinds:
        raise UserError(NO_ATTENTION)
    kind = choice.kind or MAIN
    if kind not in kinds:
        raise UserError(f"--kind {kind}: {nearest(kind, tuple(kinds))}")
    attention = kinds[kind]
    counts = (("layer", len(attention.layers)), ("head", attention.heads), ("line", attention.lines))
    for name, count in counts:
        number = getattr(choice, name)
        if number is not None and number > count:
            raise UserError(f"--{name} {number}: {KINDS[kind].title} has {count}; choose a smaller number")
    return attention


def show_heads(inspection: FoldInspection, choice: AttentionChoice) -> FoldView:
    """Show every head of all layers, or of one, of a kind of attention."""
    attention = get_attention(inspection, choice)
    layers = range(len(attention.layers)) if choice.layer is None else [choice.layer - 1]
    line = None if choice.line is None else choice.line - 1
    weights = np.stack([attention.select(layer, line) for layer in layers])  # (layers, H, Q, K)
    maps = [
        PairMap(f"layer {layer + 1}, head {head + 1}", weights[row, head], 0.0, float(weights.max()))
        for row, layer in enumerate(layers)
        for head in range(attention.heads)
    ]
    note = f"{KINDS[attention.kind].title}, {describe_line(attention, choice)}; queries down, keys across"
    return FoldView(
        lambda title: draw_pair_maps(maps, title, note, attention.heads, 150.0),
        {"kind": attention.kind, "weights": round_values(weights, 5)},
    )


def show_map(inspection: FoldInspection, choice: AttentionChoice) -> FoldView:
    """Show one map: of one layer, the last by default, and one head, or their mean."""
    attention = get_attention(inspection, choice)
    layer = -1 if choice.layer is None else choice.layer - 1
    heads = attention.select(layer, None if choice.line is None else choice.line - 1)
    weights = heads.mean(0) if choice.head is None else heads[choice.head - 1]
    names = name_tokens(inspection, attention)
    head = "mean of heads" if choice.head is None else f"head {choice.head}"
    note = f"{KINDS[attention.kind].title}, layer {layer % len(attention.layers) + 1}, {head}, "
    note += describe_line(attention, choice)
    return FoldView(
        lambda title: draw_alignment(weights, names, names, title, note),
        {"kind": attention.kind, "weights": round_values(weights, 5)},
    )


def name_tokens(inspection: FoldInspection, attention: FoldAttention) -> list[str]:
    """Names of queries and keys: residues with their numbers, or rows of the alignment."""
    if KINDS[attention.kind].token == "residue":
        return [f"{letter}{number}" for number, letter in enumerate(inspection.sequence, 1)]
    return ["query", *(f"row {number}" for number in range(2, attention.tokens + 1))]


def describe_line(attention: FoldAttention, choice: AttentionChoice) -> str:
    what = KINDS[attention.kind].line
    if not what:
        return "all residues"
    return f"mean over {attention.lines} {what}s" if choice.line is None else f"of {what} {choice.line}"


def show_torsions(inspection: FoldInspection, choice: AttentionChoice) -> FoldView:
    """Show AlphaFold 1's distributions of φ and ψ along the chain, with the true angles."""
    torsions = inspection.pictures.torsions
    if torsions is None:
        raise UserError(
            "--view torsions: is of AlphaFold 1, which predicts distributions of torsions; use another view"
        )
    true = inspection.true_torsions
    numbers = {name: round_values(torsions.sum(axis), 5) for name, axis in (("phi", 2), ("psi", 1))}
    return FoldView(lambda title: draw_torsions(torsions, true, title), numbers)


def show_states(inspection: FoldInspection, choice: AttentionChoice) -> FoldView:
    """Show AlphaFold 1's secondary structure under the sequence."""
    states, true = inspection.pictures.states, inspection.source.states
    if not states:
        raise UserError("--view states: is of AlphaFold 1, which predicts secondary structure; use another view")
    tracks = [Track("predicted", states), *([Track("true", true)] if true else [])]
    numbers = {track.label: track.states for track in tracks}
    return FoldView(lambda title: draw_secondary(title, inspection.sequence, tracks), numbers)


def round_values(values: Values, digits: int) -> list[Any]:
    """Values as lists for JSON, None where they are not known."""
    rounded = np.round(values.astype(float), digits).astype(object)
    rounded[np.isnan(values)] = None
    result: list[Any] = rounded.tolist()
    return result


class View(NamedTuple):
    show: Callable[[FoldInspection, AttentionChoice], FoldView]
    options: frozenset[str] = frozenset()  # fields of the choice that it uses


VIEWS = {
    "distances": View(show_distances),
    "confidence": View(show_confidence),
    "errors": View(show_errors),
    "structure": View(show_structure),
    "layers": View(show_layers),
    "heads": View(show_heads, frozenset(("kind", "layer", "line"))),
    "alignment": View(show_map, frozenset(("kind", "layer", "head", "line"))),
    "torsions": View(show_torsions),
    "states": View(show_states),
}


def show(view: str, inspection: FoldInspection, choice: AttentionChoice) -> FoldView:
    """Show one view; options that it does not use are refused."""
    if view not in VIEWS:
        raise UserError(f"--view {view}: is not of chains, which this run reads; {nearest(view, tuple(VIEWS))}")
    for name in ("kind", "layer", "head", "line"):
        if name not in VIEWS[view].options and getattr(choice, name) is not None:
            raise UserError(f"--view {view}: has nothing to do with --{name}; leave that out")
    return VIEWS[view].show(inspection, choice)
