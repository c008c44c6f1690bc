"""How much memory AlphaFold 2 and 1 need for a chain, computed from their sizes.

In inference a few tables of the size of the pairs and of the alignments are alive at once, and attention maps are
computed in parts of limited size. Training stores the activations of every block, of which attention maps, cubic in the
length, are the largest.

Letters: L residues, S rows of the alignment, E rows of the extra alignment.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headwise.blocks.axial import MAX_SCORES
from headwise.blocks.pair_updates import MAX_PRODUCTS
from headwise.errors import UserError
from headwise.models.alphafold2 import AlphaFold2Config
from headwise.models.evoformer import MsaSizes
from headwise.proteins.pair_features import TYPES, count_channels

FLOAT = 4  # bytes
LIVE = 10  # tables of one size that are alive at once in inference
# tables of one size that autograd stores for a block
STORED_PAIR, STORED_MSA, STORED_MAPS = 32, 13, 3
LIVE_COVARIANCES, LIVE_MAPS = 2, 2  # tables that are alive at once in the inference of AlphaFold 1
LONGEST = 20_000  # residues


@dataclass(frozen=True)
class Alignments:
    """Rows that a model reads."""

    clusters: int
    extra: int


def estimate_bytes(config: AlphaFold2Config, parameters: int, length: int, rows: Alignments, training: bool) -> int:
    """Bytes for one chain of `length` residues: weights, and activations of inference or of a step of training."""
    pairs = length**2 * config.pair_width
    tables = pairs + length * (rows.clusters * config.width + rows.extra * config.extra_msa.width)
    scores = min(MAX_SCORES, max(rows.clusters, rows.extra, length) * length**2)
    inference = LIVE * tables + 3 * config.heads * scores
    inference += 2 * min(MAX_PRODUCTS, length**2 * config.outer_width**2)
    if not training:
        return FLOAT * (parameters + inference)
    blocks = [
        config.depth * count_stored(config, config.msa_sizes, length, rows.clusters),
        config.extra_msa.depth * count_stored(config, config.extra_sizes, length, rows.extra),
    ]
    if config.checkpointing:  # one block at a time, and the inputs of all
        deepest = max(
            block // max(depth, 1) for block, depth in zip(blocks, (config.depth, config.extra_msa.depth), strict=True)
        )
        blocks = [deepest, (config.depth + config.extra_msa.depth) * tables]
    return FLOAT * (4 * parameters + inference + sum(blocks))


def count_stored(config: AlphaFold2Config, sizes: MsaSizes, length: int, rows: int) -> int:
    """Numbers that autograd stores for a block."""
    maps = rows * sizes.heads * length**2 + 2 * config.triangles * config.pair_heads * length**3
    maps += length * sizes.heads * (rows if sizes.global_columns else rows**2)
    outer = length**2 * sizes.outer_width**2
    return (
        STORED_MAPS * maps
        + 2 * outer
        + STORED_PAIR * length**2 * config.pair_width
        + STORED_MSA * rows * length * sizes.width
    )


def estimate_map_bytes(parameters: int, length: int, rows: int, bins: int, covariance: bool) -> int:
    """Bytes for one chain in the inference of AlphaFold 1: the covariances of all columns, and maps of features and
    distances. Tiles are of one size."""
    covariances = LIVE_COVARIANCES * (TYPES * length) ** 2 + 3 * rows * TYPES * length
    maps = LIVE_MAPS * (count_channels(covariance) + bins) * length**2
    return FLOAT * (parameters + covariances + maps)


def find_longest(estimate: Callable[[int], int], available: int) -> int:
    """The longest chain whose estimated bytes are `available`; 0: none."""
    low, high = 0, LONGEST
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if estimate(middle) <= available else (low, middle - 1)
    return low


def check_length(estimate: Callable[[int], int], length: int, available: int, advice: str) -> None:
    """Refuse a chain that would not fit into `available` bytes; 0: they are not known."""
    needed = estimate(length)
    if not available or needed <= available:
        return
    longest = find_longest(estimate, available)
    fewer = f"at most {longest:,} residues fit" if longest else "no chain fits; choose a smaller model"
    sizes = f"about {needed / 1e9:.1f} GB and {available / 1e9:.1f} GB are free"
    raise UserError(f"a chain of {length:,} residues needs {sizes}: {fewer}; {advice}")
