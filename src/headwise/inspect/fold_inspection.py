"""One chain through a folding model: its predicted structure, distances, confidences and attention maps, beside the
true structure where it is known.

Letters: L residues, K bins of distances, n bins of a torsion, N layers of the structure module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, singledispatch
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headwise.blocks.record import record
from headwise.data.compression import strip_suffix
from headwise.errors import UserError
from headwise.inference.trained_model import TrainedModel
from headwise.inspect.fold_attention import FoldAttention, check_map_memory, read_attention, select_last_cycle
from headwise.models.alphafold2 import AlphaFold2
from headwise.models.folding_heads import Prediction
from headwise.proteins.alignments import Alignment, make_single_row
from headwise.proteins.distograms import DistanceBins, compute_contact_probabilities
from headwise.proteins.metrics import compare_structures, compute_distances, compute_lddt, find_contacts
from headwise.proteins.readers.alignments import read_alignment
from headwise.proteins.readers.structures import READERS as STRUCTURE_READERS
from headwise.proteins.readers.structures import read_chain
from headwise.proteins.residues import CA, encode_sequence
from headwise.proteins.rigid_groups import compute_backbone_frames, to_atom37
from headwise.proteins.structure import Structure
from headwise.proteins.superposition import superimpose
from headwise.proteins.torsions import measure_torsions
from headwise.tasks.distogram_loss import ChainPrediction

Values = NDArray[np.floating]


@dataclass(frozen=True, eq=False)
class ChainSource:
    """What a model is given: an alignment, whose first row is the query, and the true structure, if it is known."""

    name: str
    alignment: Alignment
    true: Structure | None = None
    states: str = ""  # true secondary structure, where it is known

    def __post_init__(self) -> None:
        if self.true is not None and self.true.sequence != self.alignment.query:
            raise UserError(
                f"{self.name}: the query has {self.alignment.length} residues and the true structure {len(self.true)}, "
                "or they differ; give the structure of the query"
            )


def take_test_chain(loaded: TrainedModel, number: int = 0) -> ChainSource:
    """A chain of the test split, counted from 0."""
    chains = loaded.held_out()
    if not 0 <= number < len(chains):
        raise UserError(f"there is no test chain {number + 1}; this run has {len(chains)}")
    chain = chains[number]
    return ChainSource(f"test chain {number + 1}", chain.alignment, chain.structure, chain.secondary)


def read_source(path: Path, true: Path | None = None) -> ChainSource:
    """A chain of a file: an alignment or a sequence, or a structure, whose sequence is then the query and which is the
    true one. `true` is the structure of an alignment's query."""
    if Path(strip_suffix(path.name)).suffix.lower() in STRUCTURE_READERS:
        structure = read_chain(path)
        return ChainSource(path.name, make_single_row(structure.sequence), structure)
    return ChainSource(path.name, read_alignment(path), None if true is None else read_chain(true))


@dataclass(frozen=True, eq=False)
class TrueChain:
    """The true structure beside a prediction; NaN where it is not known."""

    structure: Structure  # superimposed on the prediction
    distances: Values  # (L, L) of Cβ, Å
    contacts: NDArray[np.bool_]  # (L, L)
    lddt: Values  # (L,) lDDT-Cα of the prediction, 0 to 100
    aligned_error: Values  # (L, L) error of residue j in the frame of residue i, Å

    @classmethod
    def compare(cls, predicted: Structure, true: Structure) -> TrueChain:
        """Measure a prediction against the truth."""
        (points, known), (beta, beta_known) = true.get_atoms("CA"), true.beta
        motion = superimpose(points[known], predicted.atoms[known, CA], torch.ones(int(known.sum())))
        moved = replace(true, atoms=motion.apply(true.atoms.flatten(0, 1)).view_as(true.atoms))
        scores = torch.full((len(true),), torch.nan)
        scores[known] = compute_lddt(predicted.atoms[known, CA], points[known], torch.arange(int(known.sum())))
        both = known[:, None] & known
        return cls(
            moved,
            to_numpy(compute_distances(beta), beta_known[:, None] & beta_known),
            (find_contacts(true)[0] & beta_known[:, None] & beta_known).numpy(),
            100 * to_numpy(scores),
            to_numpy(measure_aligned_error(predicted, true), both),
        )


def measure_aligned_error(predicted: Structure, true: Structure) -> Tensor:
    """The error of Cα of residue j where the frames of residue i are superimposed, (L, L), in Å."""
    local = [
        compute_backbone_frames(each.atoms).unsqueeze(-1).apply_inverse(each.atoms[None, :, CA])
        for each in (predicted, true)
    ]
    return (local[0] - local[1]).norm(dim=-1)


def to_numpy(values: Tensor, known: Tensor | None = None) -> Values:
    """Values as an array, NaN where they are not known."""
    values = values.detach().cpu().float()
    return (values if known is None else values.masked_fill(~known, torch.nan)).numpy()


@dataclass(frozen=True, eq=False)
class ChainPictures:
    """What a model says of a chain. `fold` gives the structure and the confidence in each residue, (L,) from 0 to 100:
    AlphaFold 1 minimises a potential for it, which takes long."""

    fold: Callable[[], tuple[Structure, Tensor]]
    confidence_name: str
    distances: Values  # (L, L) expected distance of Cβ, Å
    contacts: Values  # (L, L) probability of a distance below 8 Å
    aligned_error: Values | None = None  # (L, L) PAE, Å
    layers: Values | None = None  # (N, L, 3) Cα after each layer of the structure module
    torsions: Values | None = None  # (L, n, n) distribution of φ and ψ
    states: str = ""  # secondary structure, three states
    attention: Mapping[str, FoldAttention] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class FoldInspection:
    """A trained model and one chain."""

    loaded: TrainedModel
    source: ChainSource

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def sequence(self) -> str:
        return self.source.alignment.query

    @cached_property
    def pictures(self) -> ChainPictures:
        """Run the model, with its attention recorded."""
        task, model, alignment = self.loaded.check_command("fold"), self.loaded.model, self.source.alignment
        if isinstance(model, AlphaFold2):
            check_map_memory(model.config, alignment.length, min(len(alignment), task.config.clusters))
        with record(select_last_cycle(model)) as maps:
            prediction = task.predict(model, alignment)
        pictures = read_prediction(prediction, task, model, alignment)
        return replace(pictures, attention=read_attention(maps))

    @cached_property
    def folded(self) -> tuple[Structure, Tensor]:
        return self.pictures.fold()

    @property
    def structure(self) -> Structure:
        return self.folded[0]

    @property
    def confidence(self) -> Values:
        """pLDDT, or AlphaFold 1's share of probability, (L,) from 0 to 100."""
        return to_numpy(self.folded[1])

    @cached_property
    def true(self) -> TrueChain | None:
        return None if self.source.true is None else TrueChain.compare(self.structure, self.source.true)

    @property
    def true_torsions(self) -> Values | None:
        """φ and ψ of the true structure in degrees, (L, 2); NaN where they are not known."""
        if self.source.true is None:
            return None
        torsions = measure_torsions(self.source.true)
        return to_numpy(torsions.angles[:, :2].rad2deg(), torsions.known[:, :2])

    @cached_property
    def scores(self) -> dict[str, float]:
        """Metrics of the predicted structure; empty where the truth is not known."""
        return {} if self.source.true is None else compare_structures(self.structure, self.source.true)


@singledispatch
def read_prediction(prediction: Any, task: Any, model: Any, alignment: Alignment) -> ChainPictures:
    """What is drawn of a task's prediction."""
    raise TypeError(f"no pictures of {type(prediction).__name__}")


@read_prediction.register
def _alphafold2(prediction: Prediction, task: Any, model: Any, alignment: Alignment) -> ChainPictures:
    atoms, mask = to_atom37(prediction.chain.atoms.cpu(), torch.tensor([encode_sequence(alignment.query)]))
    probabilities = prediction.distogram[0].softmax(-1).cpu().float()
    bins = DistanceBins(probabilities.shape[-1])
    structure = Structure(alignment.query, atoms[0].float(), mask[0])
    return ChainPictures(
        lambda: (structure, prediction.plddt[0]),
        "pLDDT",
        to_numpy(probabilities @ bins.centres),
        to_numpy(compute_contact_probabilities(probabilities, bins)),
        to_numpy(prediction.pae[0]) if task.config.weights.aligned_error else None,  # an untrained head says nothing
        to_numpy(prediction.chain.backbones.translations[:, 0]),
    )


@read_prediction.register
def _alphafold1(prediction: ChainPrediction, task: Any, model: Any, alignment: Alignment) -> ChainPictures:
    return ChainPictures(
        lambda: task.fold(model, alignment),
        "confidence",
        to_numpy(prediction.distances @ task.bins.centres),
        to_numpy(compute_contact_probabilities(prediction.distances, task.bins)),
        torsions=to_numpy(prediction.torsions),
        states=prediction.describe_states(),
    )
