"""One chain through a folding model: its structure, maps of pairs, confidences, and attention maps by layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from headwise.errors import UserError
from headwise.inspect.fold_attention import KINDS, FoldAttention
from headwise.inspect.fold_inspection import ChainSource, FoldInspection, take_test_chain
from headwise.inspect.fold_page import list_maps, orient_traces
from headwise.inspect.fold_views import name_tokens, round_values
from headwise.inspect.pair_maps import PairMap
from headwise.inspect.svg import replace_controls
from headwise.proteins.alignments import Alignment, make_single_row
from headwise.proteins.readers.a3m import parse_a3m
from headwise.proteins.readers.fasta import parse_sequence
from headwise.studio.binary_response import BinaryResponse
from headwise.studio.limits import MAX_RESIDUES

if TYPE_CHECKING:
    from headwise.inference.trained_model import TrainedModel

NOT_KNOWN = -1.0  # in a map of pairs, whose values are 0 or more
PLACE = "alignment"


def fold_chain(trained: TrainedModel, alignment: str, number: int) -> FoldInspection:
    """Run the model on an alignment or a sequence, or on a test chain, counted from 0, if there is none."""
    trained.check_command("fold")
    if alignment.strip():
        source = ChainSource("your sequence", parse_alignment(alignment))
    else:
        source = take_test_chain(trained, number)
    if source.alignment.length > MAX_RESIDUES:
        raise UserError(
            f"this chain has {source.alignment.length:,} residues, and at most {MAX_RESIDUES} are allowed here; cut it"
        )
    return FoldInspection(trained, source)


def parse_alignment(text: str) -> Alignment:
    """An alignment in A3M or FASTA, or the letters of one sequence."""
    if text.lstrip().startswith(">"):
        return parse_a3m(text.lstrip(), PLACE)
    return make_single_row(parse_sequence("".join(text.split()), PLACE))


def pack_chain(inspection: FoldInspection, details: dict[str, Any]) -> bytes:
    """Everything but the attention weights: sequence, scores, traces, confidences, and maps of pairs."""
    response, pictures, true = BinaryResponse(), inspection.pictures, inspection.true
    trace, true_trace = orient_traces(inspection)
    return response.to_bytes(
        {
            **details,
            "chain": replace_controls(inspection.name),
            "sequence": inspection.sequence,
            "scores": {name: round(value, 4) for name, value in inspection.scores.items()},
            "confidence_name": pictures.confidence_name,
            "confidence": round_values(inspection.confidence, 2),
            "lddt": None if true is None else round_values(true.lddt, 2),
            "trace": trace,
            "true_trace": true_trace,
            "states": [[name, states] for name, states in list_states(inspection) if states],
            "maps": [describe_map(each, response) for each in list_maps(inspection)],
            "attention": [describe_attention(inspection, each) for each in pictures.attention.values()],
        }
    )


def list_states(inspection: FoldInspection) -> list[tuple[str, str]]:
    """Secondary structure, where the model predicts it."""
    states = inspection.pictures.states
    return [("predicted", states), ("true", inspection.source.states if states else "")]


def describe_map(each: PairMap, response: BinaryResponse) -> dict[str, Any]:
    values = np.nan_to_num(each.values, nan=NOT_KNOWN)
    limits = {"low": each.low, "high": each.high, "unit": each.unit, "small_is_dark": each.small_is_dark}
    return {"name": each.name, **limits, "values": response.add(values)}


def describe_attention(inspection: FoldInspection, attention: FoldAttention) -> dict[str, Any]:
    kind = KINDS[attention.kind]
    sizes = {"layers": len(attention.layers), "heads": attention.heads, "lines": attention.lines}
    return {
        "name": attention.kind,
        "title": kind.title,
        "line": kind.line,
        **sizes,
        "tokens": name_tokens(inspection, attention),
    }


def pack_attention(inspection: FoldInspection, kind: str, layer: int, line: int = -1) -> bytes:
    """The maps of all heads of one layer, (H, Q, K): of one line, or the mean of all."""
    attention = inspection.pictures.attention.get(kind)
    if attention is None or not 0 <= layer < len(attention.layers):
        raise UserError(f"there is no layer {layer + 1} of {kind} attention here")
    if line >= attention.lines:
        raise UserError(f"there is no {KINDS[kind].line or 'line'} {line + 1} here")
    response = BinaryResponse()
    weights = attention.select(layer, line if line >= 0 else None)
    return response.to_bytes({"kind": kind, "layer": layer, "weights": response.add(weights)})


def count_bytes(inspection: FoldInspection) -> int:
    """The size of all attention maps in bytes."""
    return sum(layer.nbytes for each in inspection.pictures.attention.values() for layer in each.layers)
