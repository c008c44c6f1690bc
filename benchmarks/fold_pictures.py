"""The pictures of docs/folding.md: `python benchmarks/fold_pictures.py RUN --alphafold1 RUN [--chain 2]`.

RUN is a run of `experiments/chains-alphafold2.toml`, that of `--alphafold1` one of its neighbour. All pictures but that
of the triangles show numbers of a test chain; the co-variation is that of the chain's fold with a larger alignment.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

import headwise
from headwise.inference.trained_model import TrainedModel
from headwise.inspect import colour
from headwise.inspect.files import save
from headwise.inspect.fold_inspection import FoldInspection, take_test_chain, to_numpy
from headwise.inspect.fold_views import FARTHEST, AttentionChoice, show
from headwise.inspect.pair_maps import PairMap, draw_pair_maps
from headwise.inspect.svg import Drawing, Rect, Shape, Text
from headwise.inspect.svg import Path as Line
from headwise.models.alphafold2 import AlphaFold2
from headwise.proteins.chains import generate_chain
from headwise.proteins.distograms import DistanceBins
from headwise.proteins.features import build_features, collate_features
from headwise.proteins.potential import DistancePotential
from headwise.proteins.residues import GAP_INDEX

ROWS = 1000  # of the alignment whose columns are compared
KINDS = ("rows", "columns", "starting", "points")
VIEWS = ("distances", "confidence", "errors", "structure", "layers")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--alphafold1", type=Path, required=True)
    parser.add_argument("--chain", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("docs/images"))
    arguments = parser.parse_args()
    loaded, out = headwise.load(arguments.run), arguments.out
    inspection = FoldInspection(loaded, take_test_chain(loaded, arguments.chain - 1))
    for view in VIEWS:
        show(view, inspection, AttentionChoice()).save(out / f"fold-{view}.svg", TITLES[view])
    for kind in KINDS:
        choice = AttentionChoice(kind, len(inspection.pictures.attention[kind].layers))  # the last layer
        show("heads", inspection, choice).save(out / f"fold-{kind}.svg", TITLES[kind])
    save(draw_covariation(loaded, arguments.chain - 1), out / "fold-covariation.svg")
    save(draw_triangles(), out / "fold-triangles.svg")
    save(draw_updates(inspection), out / "fold-updates.svg")
    save(draw_recycling(inspection), out / "fold-recycling.svg")
    ancestor = headwise.load(arguments.alphafold1)
    save(draw_potential(ancestor, arguments.chain - 1), out / "fold-potential.svg")
    chain = FoldInspection(ancestor, take_test_chain(ancestor, arguments.chain - 1))
    show("torsions", chain, AttentionChoice()).save(out / "fold-torsions.svg", "AlphaFold 1: torsions along the chain")


TITLES = {
    "distances": "Distances: predicted and true",
    "confidence": "Confidence along the chain",
    "errors": "Aligned errors: predicted and true",
    "structure": "The predicted structure",
    "layers": "Layers of the structure module",
    "rows": "Row-wise attention",
    "columns": "Column-wise attention",
    "starting": "Triangle attention",
    "points": "Invariant point attention",
}


def draw_covariation(loaded: TrainedModel, number: int) -> Drawing:
    """Columns that vary together beside contacts: mutual information of all pairs of columns, less what rows and
    columns of the map have in common (average product correction: Dunn et al. 2008)."""
    chain = loaded.held_out()[number]
    settings = replace(loaded.data.settings, rows=ROWS)
    larger = generate_chain(chain.family, 0, settings)
    one_hot = nn.functional.one_hot(larger.alignment.rows, GAP_INDEX + 1).float()  # (R, L, 22)
    joint = torch.einsum("ria,rjb->ijab", one_hot, one_hot) / ROWS  # (L, L, 22, 22)
    single = one_hot.mean(0)
    expected = single[:, None, :, None] * single[None, :, None, :]
    information = (joint * ((joint + 1e-9) / (expected + 1e-9)).log()).sum((-1, -2)).fill_diagonal_(0)
    length = len(information)
    means = information.sum(-1, keepdim=True) / (length - 1)
    corrected = information - means * means.T / (information.sum() / (length * (length - 1)))
    apart = (torch.arange(length)[:, None] - torch.arange(length)).abs() >= 4
    values = to_numpy(corrected.clamp(min=0), apart)
    contacts = to_numpy(larger.contacts.float(), apart)
    maps = [
        PairMap("how much two columns vary together", values, 0.0, float(np.nanmax(values))),
        PairMap("true contacts", contacts, 0.0, 1.0),
    ]
    note = f"{ROWS:,} sequences of one fold; grey: fewer than four residues apart"
    return draw_pair_maps(maps, "Co-variation and contacts", note)


def draw_triangles() -> Drawing:
    """The four updates of edge i j by triangles: which edges they read."""
    updates = (
        ("multiplication, outgoing", ("ik", "jk"), "sum over k of a_ik · b_jk"),
        ("multiplication, incoming", ("ki", "kj"), "sum over k of a_ki · b_kj"),
        ("attention, starting node", ("ik", "jk"), "attends to i k; bias j k"),
        ("attention, ending node", ("kj", "ki"), "attends to k j; bias k i"),
    )
    shapes: list[Shape] = [
        Text(28, 36, "Triangles", 19, bold=True),
        Text(28, 58, "dark: the edge that is updated; blue: the edges that it reads, for every k", 12.5, colour.SOFT),
    ]
    for number, (name, edges, note) in enumerate(updates):
        x = 28 + number * 196.0
        nodes = {"i": (x + 20, 210.0), "j": (x + 150, 210.0), "k": (x + 85, 112.0)}
        shapes += [Text(x, 88, name, 12.5), Text(x, 246, note, 11, colour.SOFT)]
        shapes += draw_arrow(nodes["i"], nodes["j"], colour.INK, 3.2)
        for edge in edges:
            shapes += draw_arrow(nodes[edge[0]], nodes[edge[1]], "#3578b9", 2.0)
        for letter, (across, down) in nodes.items():
            shapes.append(Rect(across - 11, down - 11, 22, 22, colour.PAPER, colour.INK, 1.4, 11))
            shapes.append(Text(across, down + 5, letter, 13, anchor="middle", bold=True))
    return Drawing(28 + 4 * 196.0, 270, tuple(shapes), "Triangles")


def draw_arrow(start: tuple[float, float], end: tuple[float, float], stroke: str, line: float) -> list[Shape]:
    """An arrow between the rims of two nodes."""
    a, b = np.array(start), np.array(end)
    along = (b - a) / np.linalg.norm(b - a)
    across = np.array([-along[1], along[0]])
    a, b = a + 13 * along, b - 13 * along
    head = [b, b - 9 * along + 5 * across, b - 9 * along - 5 * across]
    shaft = Line((tuple(a), tuple(b - 6 * along)), stroke, line)  # type: ignore[arg-type]
    return [shaft, Line(tuple(tuple(point) for point in head), stroke, 1.0, stroke)]  # type: ignore[misc]


@contextmanager
def watch(modules: dict[str, nn.Module]) -> Iterator[dict[str, Tensor]]:
    """The last outputs of modules."""
    outputs: dict[str, Tensor] = {}

    def store(name: str) -> Callable[..., None]:
        return lambda module, inputs, output: outputs.update({name: output})

    handles = [module.register_forward_hook(store(name)) for name, module in modules.items()]
    try:
        yield outputs
    finally:
        for handle in handles:
            handle.remove()


def draw_updates(inspection: FoldInspection) -> Drawing:
    """What each module of the last block adds to the pairs: the length of the added vector."""
    model = inspection.loaded.model
    assert isinstance(model, AlphaFold2)
    block = model.evoformer.layers[-1]
    modules = {
        "outer product mean": block.outer_product,
        "triangle multiplication, outgoing": block.pair.outgoing,
        "triangle multiplication, incoming": block.pair.incoming,
        "triangle attention, starting node": block.pair.starting,
        "triangle attention, ending node": block.pair.ending,
        "transition": block.pair.transition,
    }
    with watch(modules) as outputs:
        inspection.loaded.task.predict(model, inspection.source.alignment)
    lengths = {name: to_numpy(output[0].norm(dim=-1)) for name, output in outputs.items()}
    maps = [PairMap(name, values, 0.0, float(values.max())) for name, values in lengths.items()]
    note = "length of the vector that is added to each pair, in the last block of the last cycle"
    return draw_pair_maps(maps, "What each module adds to the pairs", note, columns=3, side=190.0)


@torch.no_grad()
def draw_recycling(inspection: FoldInspection) -> Drawing:
    """Expected distances after one cycle and more."""
    model, task = inspection.loaded.model, inspection.loaded.task
    generator = torch.Generator().manual_seed(0)
    features = collate_features([build_features(inspection.source.alignment, task.config.msa_settings, generator)])
    maps = []
    for cycles in (1, 2, 4):
        probabilities = model(features, recycles=cycles - 1).distogram[0].softmax(-1)
        distances = to_numpy(probabilities @ DistanceBins(probabilities.shape[-1]).centres)
        maps.append(PairMap(f"after {cycles} cycle{'s' if cycles > 1 else ''}", distances, 0.0, FARTHEST, "Å", True))
    assert inspection.true is not None
    maps.append(PairMap("true distance", inspection.true.distances, 0.0, FARTHEST, "Å", True))
    note = f"expected distance; trained with at most {model.config.recycles + 1} cycles"
    return draw_pair_maps(maps, "Recycling", note, columns=4, side=170.0)


def draw_potential(loaded: TrainedModel, number: int) -> Drawing:
    """AlphaFold 1: of two pairs of residues the distribution of their distance, and the potential made of it."""
    chain, task, model = loaded.held_out()[number], loaded.task, loaded.model
    prediction = task.predict(model, chain.alignment)
    potential = DistancePotential(prediction.distances, task.bins, model.reference.cpu())
    beta = chain.structure.beta[0]
    near, far = choose_pairs(beta)
    shapes: list[Shape] = [
        Text(28, 36, "From a distribution to a potential", 19, bold=True),
        Text(
            28, 58, "bars: predicted probability of a distance; line: potential −log p + log p_ref", 12.5, colour.SOFT
        ),
    ]
    for panel, (i, j) in enumerate((near, far)):
        place = int(((potential.rows == i) & (potential.columns == j)).nonzero())
        true = float((beta[i] - beta[j]).norm())
        name = f"residues {i + 1} and {j + 1}, {true:.1f} Å apart"
        values = (prediction.distances[i, j].numpy(), potential.values[place].numpy(), task.bins)
        shapes += draw_distribution(*values, true, name, 28 + panel * 380.0)
    return Drawing(28 + 2 * 380.0, 330, tuple(shapes), "From a distribution to a potential")


def choose_pairs(beta: Tensor) -> list[tuple[int, int]]:
    """Of the pairs of residues that are ten or more apart in the sequence, those nearest to 6 Å and to 16 Å."""
    distances = torch.cdist(beta, beta)
    apart = torch.ones_like(distances).triu(10) > 0
    pairs = []
    for wanted in (6.0, 16.0):
        gap = (distances - wanted).abs().masked_fill(~apart, torch.inf)
        pairs.append(divmod(int(gap.argmin()), len(beta)))
    return pairs


def draw_distribution(
    probabilities: np.ndarray, energies: np.ndarray, bins: DistanceBins, true: float, name: str, left: float
) -> list[Shape]:
    """Bars of a distribution with the potential over them, and the true distance in orange."""
    wide, high, top = 340.0, 190.0, 96.0
    bar = wide / bins.count
    tall = high / float(probabilities.max())
    shapes: list[Shape] = [Text(left, 86, name, 12.5), Rect(left, top, wide, high, stroke=colour.FAINT)]
    for number, share in enumerate(probabilities):
        shapes.append(Rect(left + number * bar, top + high - tall * share, bar, tall * share, "#c9dcf0"))
    low, span = float(energies.min()), float(np.ptp(energies)) or 1.0
    points = tuple(
        (left + (n + 0.5) * bar, top + high - 8 - (high - 16) * float(value - low) / span)
        for n, value in enumerate(energies)
    )
    shapes.append(Line(points, "#0b3a73", 2.0))
    across = left + wide * (min(max(true, bins.low), bins.high) - bins.low) / (bins.high - bins.low)
    shapes.append(Line(((across, top), (across, top + high)), colour.ACCENT, 2.0))
    for distance in (2, 6, 10, 14, 18, 22):
        x = left + wide * (distance - bins.low) / (bins.high - bins.low)
        shapes.append(Text(x, top + high + 16, f"{distance} Å", 10, colour.SOFT, "middle"))
    return shapes


if __name__ == "__main__":
    main()
