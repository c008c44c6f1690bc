"""Folding: the structure of a protein from its sequence and an alignment (AlphaFold 2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from headwise.blocks.evaluation import get_device, inference_mode
from headwise.blocks.losses import Loss, count_examples
from headwise.blocks.stack import count_parameters
from headwise.data.batches import BatchPlan
from headwise.decode.config import GREEDY, DecodeConfig
from headwise.models.alphafold2 import AlphaFold2, disable_autocast
from headwise.models.folding_heads import DISTOGRAM_BINS, Prediction
from headwise.models.folding_memory import Alignments, check_length, estimate_bytes
from headwise.proteins.alignments import AlignedChain, Alignment
from headwise.proteins.chain_sets import Chains
from headwise.proteins.distograms import DistanceBins
from headwise.proteins.features import Features, MsaSettings, build_features, collate_features, crop_chain
from headwise.proteins.metrics import compare_structures
from headwise.proteins.residues import encode_sequence
from headwise.proteins.rigid_groups import to_atom37
from headwise.proteins.structure import Structure
from headwise.tasks.base import Evaluation, TaskConfig
from headwise.tasks.chain_task import (
    CONTACT_SCORES,
    CUT_ADVICE,
    METRICS,
    ChainTask,
    average_metrics,
    get_free_memory,
    score_contacts,
)
from headwise.tasks.fold_loss import CLAMP, FoldWeights, Truth, fold_losses, weigh_losses
from headwise.train.config import TrainConfig
from headwise.train.state import LossState, Metric

UNCLAMPED = 0.1  # share of training examples whose backbone FAPE is not clamped (section 1.11.5)


@dataclass(frozen=True, eq=False)
class ChainBatch:
    """Chains with their alignments, from which the loss draws features: the random numbers of a step are the loop's."""

    chains: tuple[tuple[Structure, Alignment], ...]

    def __len__(self) -> int:
        return len(self.chains)

    @property
    def tokens(self) -> int:
        """The number of chains, which the training loop counts as it counts the tokens of texts."""
        return len(self.chains)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> ChainBatch:
        return self


class ChainData:
    """Chains in batches of `size`, in a random order."""

    unit = "chains"  # counted by the training loop

    def __init__(self, chains: Chains, seed: int, size: int):
        self.chains, self.seed, self.size = chains, seed, min(size, len(chains))

    @property
    def summary(self) -> str:
        return f"{len(self.chains):,} chains to train on; {len(self.plan(0)):,} batches an epoch"

    def plan(self, epoch: int) -> Sequence[np.ndarray]:
        """Order the batches of an epoch, all of full size."""
        order = np.random.default_rng([self.seed, epoch]).permutation(len(self.chains))
        batches = len(order) // self.size
        return BatchPlan(order[: batches * self.size], np.arange(batches) * self.size, np.arange(batches))

    def batch(self, numbers: np.ndarray) -> ChainBatch:
        chains = (self.chains[int(number)] for number in numbers)
        return ChainBatch(tuple((chain.structure, chain.alignment) for chain in chains))


class Fold(ChainTask["FoldConfig", AlphaFold2]):
    """The structure of chains, all heavy atoms, with a confidence in each residue."""

    host_work = "crops and features of chains, whose random numbers are those of the step"

    def build_batches(self, examples: Chains, seed: int, config: TrainConfig) -> ChainData:
        return ChainData(examples, seed, config.batch_size or 1)

    @property
    def units(self) -> str:
        return f"crops of {self.config.crop} residues"

    @property
    def checkpoint_metric(self) -> Metric:
        return Metric("lddt", lower=False)

    def loss(self, model: AlphaFold2, batch: ChainBatch, state: LossState) -> Loss:
        """The losses of all chains; a chain weighs by the square root of its length (section 1.11.5)."""
        crops = [crop_chain(structure, self.limit(rows), self.config.crop) for structure, rows in batch.chains]
        self.check_memory(model, max(len(structure) for structure, _, _ in crops), training=True)
        settings, device = self.config.msa_settings, get_device(model)
        examples = [build_features(rows, settings, start=start, mask=True) for _, rows, start in crops]
        features = collate_features(examples).to(device)
        truth = Truth.of([structure for structure, _, _ in crops]).to(device)
        return self.structure_loss(model, features, truth)

    def structure_loss(self, model: AlphaFold2, features: Features, truth: Truth) -> Loss:
        """The losses of crops, with the features of their alignments."""
        keep = features.keep
        clamp = torch.where(torch.rand(len(keep), device=keep.device) < UNCLAMPED, torch.inf, CLAMP)
        prediction = model(features)
        with disable_autocast(keep):
            losses = fold_losses(prediction, truth, features, self.config.weights, clamp)
        by_chain = weigh_losses(losses, self.config.weights)  # (B,)
        weights = keep.sum(1).sqrt()
        total = len(by_chain) * (by_chain * weights).sum() / weights.sum()
        return Loss(total, total.detach(), count_examples(by_chain))

    def limit(self, alignment: Alignment) -> Alignment:
        """The rows of an alignment that are read."""
        most = self.config.max_rows
        return alignment.select(torch.arange(most)) if 0 < most < len(alignment) else alignment

    def check_memory(self, model: AlphaFold2, length: int, training: bool) -> None:
        """Refuse a chain that would need more memory than there is."""
        rows, parameters = Alignments(self.config.clusters, self.config.extra), count_parameters(model)

        def estimate(length: int) -> int:
            return estimate_bytes(model.config, parameters, length, rows, training)

        advice = "set task.crop to that, or fewer clusters and extra rows" if training else CUT_ADVICE
        check_length(estimate, length, get_free_memory(model), advice)

    def validate(self, model: AlphaFold2, examples: Chains, pairs: Chains) -> Mapping[str, float]:
        rows = [self.score_chain(model, chain) for chain in examples]
        names = {"lddt": "lDDT-Cα", "tm": "TM-score", "plddt": "pLDDT"}
        return {name: float(np.mean([row[key] for row in rows])) for name, key in names.items()}

    def score_chain(self, model: AlphaFold2, chain: AlignedChain) -> dict[str, float]:
        """Metrics of the predicted structure, the mean pLDDT, and the precision of contacts by the distogram."""
        prediction = self.predict(model, chain.alignment)
        predicted, confidence = read_structure(prediction, chain.alignment.query)
        distances = prediction.distogram[0].cpu().softmax(-1)
        contacts = score_contacts(distances, DistanceBins(DISTOGRAM_BINS), chain.structure)
        metrics = compare_structures(predicted, chain.structure)
        return metrics | {"pLDDT": float(confidence.mean())} | dict(zip(CONTACT_SCORES, contacts, strict=True))

    def evaluate(
        self, model: AlphaFold2, pairs: Chains, config: DecodeConfig = GREEDY, language: str = "en"
    ) -> Evaluation:
        """Metrics of the predicted structures and contacts; intervals are over chains."""
        rows = [self.score_chain(model, chain) for chain in pairs]
        sources = [chain.structure.sequence for chain in pairs]
        outputs = [
            f"lDDT-Cα {100 * row['lDDT-Cα']:.1f}, lDDT {100 * row['lDDT']:.1f}, pLDDT {row['pLDDT']:.1f}"
            for row in rows
        ]
        scores = average_metrics(rows, (*METRICS, "lDDT", "pLDDT", *CONTACT_SCORES))
        return Evaluation(sources, outputs, [[""] for _ in rows], scores)

    def fold(self, model: AlphaFold2, alignment: Alignment) -> tuple[Structure, Tensor]:
        """The structure of the query, and its pLDDT (L,), 0 to 100. The sample of the alignment is always the same."""
        return read_structure(self.predict(model, alignment), alignment.query)

    def predict(self, model: AlphaFold2, alignment: Alignment) -> Prediction:
        """The outputs for one query, without padding."""
        self.check_memory(model, alignment.length, training=False)
        generator = torch.Generator().manual_seed(0)
        features = collate_features([build_features(self.limit(alignment), self.config.msa_settings, generator)])
        with inference_mode(model):
            return model(features.to(get_device(model), next(model.parameters()).dtype))


def read_structure(prediction: Prediction, sequence: str) -> tuple[Structure, Tensor]:
    """The structure of the first chain of a prediction, and its pLDDT (L,)."""
    residues = torch.tensor([encode_sequence(sequence)])
    atoms, mask = to_atom37(prediction.chain.atoms.cpu(), residues)
    return Structure(sequence, atoms[0].float(), mask[0]), prediction.plddt[0].cpu()


class FoldConfig(TaskConfig):
    """Structures of proteins from alignments: all heavy atoms, with a confidence in each residue."""

    task_class = Fold
    command = "fold"
    reads = "chains"
    kind: Literal["fold"] = "fold"
    crop: int = Field(256, ge=2)  # residues of a training example
    clusters: int = Field(128, ge=1)  # rows of the alignment that are centres of clusters, the query included
    extra: int = Field(1024, ge=0)  # rows of the extra alignment
    masked: float = Field(0.15, ge=0, lt=1)  # share of masked residues
    max_rows: int = Field(0, ge=0)  # of an alignment, the first ones; 1: the query alone; 0: all
    weights: FoldWeights = FoldWeights()

    @property
    def msa_settings(self) -> MsaSettings:
        return MsaSettings(self.clusters, self.extra, self.masked)
