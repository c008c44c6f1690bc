"""Attention maps of AlphaFold 2 on one chain: rows and columns of the alignment, triangles of the pairs, and invariant
point attention.

Letters: N lines of a table, H heads, Q queries, K keys, L residues, S rows of the alignment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from headwise.blocks.record import AttentionRecord
from headwise.blocks.stream import LayerPath
from headwise.errors import UserError
from headwise.models.alphafold2 import AlphaFold2, AlphaFold2Config

Weights = NDArray[np.floating]
MAX_BYTES = 2**30  # of the maps of one chain
FLOAT = 4  # bytes


class AttentionKind(NamedTuple):
    """A kind of attention: what a line of its table is, each of which has its own map, and what its tokens are."""

    title: str
    line: str
    token: str


KINDS: Mapping[str, AttentionKind] = {
    "rows": AttentionKind("row-wise attention of the alignment, with pair bias", "row", "residue"),
    "columns": AttentionKind("column-wise attention of the alignment", "residue", "row"),
    "starting": AttentionKind("triangle attention around the starting node", "residue", "residue"),
    "ending": AttentionKind("triangle attention around the ending node", "residue", "residue"),
    "points": AttentionKind("invariant point attention of the structure module", "", "residue"),
}
MAIN = "starting"  # the kind shown first
_PLACES: Mapping[LayerPath, str] = {
    ("rows",): "rows",
    ("columns",): "columns",
    ("pair", "starting"): "starting",
    ("pair", "ending"): "ending",
}  # in a block of the Evoformer


@dataclass(frozen=True, eq=False)
class FoldAttention:
    """The maps of one kind: of each layer (N, H, Q, K), with rows that sum to one."""

    kind: str
    layers: tuple[Weights, ...]

    @property
    def heads(self) -> int:
        return int(self.layers[0].shape[1])

    @property
    def lines(self) -> int:
        return int(self.layers[0].shape[0])

    @property
    def tokens(self) -> int:
        return int(self.layers[0].shape[-1])

    def select(self, layer: int = -1, line: int | None = None) -> Weights:
        """The maps of all heads of one layer, (H, Q, K): of one line, or the mean of all."""
        maps = self.layers[layer]
        result: Weights = maps.mean(axis=0) if line is None else maps[line]
        return result

    def stack_means(self) -> Weights:
        """The means over lines of all layers, (layers, H, Q, K)."""
        return np.stack([self.select(layer) for layer in range(len(self.layers))])


def select_last_cycle(model: object) -> Callable[[LayerPath], bool]:
    """The paths of the Evoformer and of the structure module in the last cycle of recycling."""
    last = model.config.recycles if isinstance(model, AlphaFold2) else 0
    return lambda path: len(path) > 2 and path[0] == last and path[1] in ("evoformer", "structure")


def read_attention(record: AttentionRecord) -> dict[str, FoldAttention]:
    """The recorded maps by kind; large tables are recorded in parts, which are joined here."""
    layers: dict[str, list[Weights]] = {kind: [] for kind in KINDS}
    for path, parts in record.weights.items():
        kind = "points" if path[1] == "structure" else _PLACES[path[3:]]
        layers[kind].append(torch.cat(parts).float().cpu().numpy())
    return {kind: FoldAttention(kind, tuple(found)) for kind, found in layers.items() if found}


def check_map_memory(config: AlphaFold2Config, length: int, rows: int) -> None:
    """Refuse a chain whose attention maps would not fit into `MAX_BYTES`."""
    if (needed := count_map_bytes(config, length, rows)) > MAX_BYTES:
        longest = next(n for n in range(length, -1, -1) if count_map_bytes(config, n, rows) <= MAX_BYTES)
        raise UserError(
            f"the attention maps of {length:,} residues take {needed / 1e9:.1f} GB, above {MAX_BYTES / 1e9:.1f} GB; "
            f"inspect a chain of at most {longest:,} residues"
        )


def count_map_bytes(config: AlphaFold2Config, length: int, rows: int) -> int:
    """The bytes of all maps of a chain, of the last cycle."""
    block = rows * config.heads * length**2 + length * config.heads * rows**2 + 2 * config.pair_heads * length**3
    points = config.structure.depth * config.structure.heads * length**2
    return FLOAT * (config.depth * block + points)
