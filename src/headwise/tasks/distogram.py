"""Distogram prediction and folding by its potential (AlphaFold 1): distances of all pairs of residues from an
alignment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from pydantic import Field
from torch import Tensor

from headwise.blocks.evaluation import get_device, inference_mode
from headwise.blocks.losses import Loss
from headwise.blocks.stack import count_parameters
from headwise.decode.config import GREEDY, DecodeConfig
from headwise.evaluate.labels import accuracy_by_text
from headwise.evaluate.score import Score
from headwise.models.alphafold1 import DistanceNetwork
from headwise.models.config import ModelConfig
from headwise.models.folding_memory import check_length, estimate_map_bytes
from headwise.proteins.alignments import AlignedChain, Alignment
from headwise.proteins.chain_sets import Chains
from headwise.proteins.distograms import DistanceBins, measure_bins
from headwise.proteins.metrics import compare_structures
from headwise.proteins.pair_features import build_pair_features
from headwise.proteins.potential import DistancePotential, MinimiseSettings, TorsionDistribution, minimise
from headwise.proteins.structure import Structure
from headwise.proteins.torsions import to_structure
from headwise.tasks.base import Evaluation, Sample, TaskConfig, take_first
from headwise.tasks.chain_task import (
    CONTACT_SCORES,
    CUT_ADVICE,
    ChainTask,
    average_metrics,
    average_score,
    get_free_memory,
    resample_ratio,
    score_contacts,
)
from headwise.tasks.distogram_loss import (
    ChainPrediction,
    CropBatch,
    CropData,
    CropSettings,
    compute_loss,
    predict_tiles,
)
from headwise.train.config import TrainConfig
from headwise.train.state import LossState, Metric

AT_ONCE = 4  # crops of a batch


class Distogram(ChainTask["DistogramConfig", DistanceNetwork]):
    """Distances of all pairs of residues; and structures, by minimising the potential that they make."""

    def build_batches(self, examples: Chains, seed: int, config: TrainConfig) -> CropData:
        return CropData(examples, self.settings, seed, config.batch_size or AT_ONCE)

    @property
    def settings(self) -> CropSettings:
        config = self.config
        return CropSettings(config.crop, self.bins, config.torsion_bins, config.covariance)

    @property
    def bins(self) -> DistanceBins:
        return DistanceBins(self.config.bins)

    @property
    def units(self) -> str:
        return f"{self.config.bins} bins of distances"

    @property
    def checkpoint_metric(self) -> Metric:
        return Metric("nll", lower=True)

    def loss(self, model: DistanceNetwork, batch: CropBatch, state: LossState) -> Loss:
        if model.training:
            model.count_reference(batch.offsets, batch.distances)
        return compute_loss(model(batch.features, batch.offsets), batch, self.config.auxiliary)

    def validate(self, model: DistanceNetwork, examples: Chains, pairs: Chains) -> Mapping[str, float]:
        rows = np.array([self.score_distances(self.predict(model, chain.alignment), chain) for chain in examples])
        nll, pairs_known = rows[:, 0].sum(), rows[:, 1].sum()
        return {"nll": float(nll / pairs_known), "precision": float(np.nanmean(rows[:, 2]))}

    def score_distances(self, prediction: ChainPrediction, chain: AlignedChain) -> list[float]:
        """Negative log-likelihood and number of pairs, and the precision of contacts."""
        bins, known = measure_bins(chain.structure, self.bins)
        known = known.clone().fill_diagonal_(False)
        log_p = prediction.distances.clamp(min=1e-9).log().gather(-1, bins.unsqueeze(-1)).squeeze(-1)
        contacts = score_contacts(prediction.distances, self.bins, chain.structure)
        return [-float(log_p[known].sum()), float(known.sum()), *contacts]

    def evaluate(
        self, model: DistanceNetwork, pairs: Chains, config: DecodeConfig = GREEDY, language: str = "en"
    ) -> Evaluation:
        """Precision of contacts six or more residues apart, secondary structure, and the structures of the first
        `fold` chains; intervals are over chains."""
        predictions = [self.predict(model, chain.alignment) for chain in pairs]
        rows = np.array([self.score_distances(each, chain) for each, chain in zip(predictions, pairs, strict=True)])
        nll = Score("nll", float(rows[:, 0].sum() / rows[:, 1].sum()), *resample_ratio(rows[:, :2]), "of a distance")
        scores = [nll]
        scores += [average_score(name, rows[:, column], "%") for column, name in enumerate(CONTACT_SCORES, 2)]
        outputs, true = [each.describe_states() for each in predictions], [chain.secondary for chain in pairs]
        states = [(output, truth) for output, truth in zip(outputs, true, strict=True) if truth]
        if states:  # structure files do not say
            predicted, expected = ([[*text] for text in side] for side in zip(*states, strict=True))
            scores.append(accuracy_by_text(predicted, expected, name="Q3"))
        scores += self.score_structures(predictions, pairs, model.reference.cpu())
        sources = [chain.structure.sequence for chain in pairs]
        return Evaluation(sources, outputs, [[states] for states in true], scores)

    def draw_samples(self, model: DistanceNetwork, pairs: Chains, count: int) -> list[Sample]:
        """Predicted and true secondary structure; nothing is folded, which takes long."""
        chains = take_first(pairs, count)
        outputs = [self.predict(model, chain.alignment).describe_states() for chain in chains]
        return [
            Sample(chain.structure.sequence, text, chain.secondary) for chain, text in zip(chains, outputs, strict=True)
        ]

    def score_structures(
        self, predictions: Sequence[ChainPrediction], chains: Chains, reference: Tensor
    ) -> list[Score]:
        """Fold the first chains and compare them with the truth."""
        count = min(self.config.fold, len(chains))
        if not count:
            return []
        folded = [
            self.fold_prediction(predictions[number], chains[number].structure.sequence, reference)
            for number in range(count)
        ]
        metrics = [compare_structures(folded[number], chains[number].structure) for number in range(count)]
        return average_metrics(metrics)

    def predict(self, model: DistanceNetwork, alignment: Alignment) -> ChainPrediction:
        """Distributions of distances, torsions and states of the query, by overlapping tiles. A chain that needs more
        memory than there is is refused."""
        parameters, rows, config = count_parameters(model), len(alignment), self.config

        def estimate(length: int) -> int:
            return estimate_map_bytes(parameters, length, rows, config.bins, config.covariance)

        check_length(estimate, alignment.length, get_free_memory(model), CUT_ADVICE)
        features = build_pair_features(alignment, self.config.covariance).to(get_device(model))
        with inference_mode(model):
            tiles = predict_tiles(model, features, self.config.crop, self.config.stride or self.config.crop // 2)
        return ChainPrediction(*(getattr(tiles, name).cpu() for name in tiles.__dataclass_fields__))

    def fold_prediction(self, prediction: ChainPrediction, sequence: str, reference: Tensor) -> Structure:
        """The structure of the lowest potential."""
        potential = DistancePotential(prediction.distances, self.bins, reference)
        restarts, steps = self.config.restarts, self.config.minimise_steps
        settings = MinimiseSettings(restarts=restarts, noisy_restarts=restarts, steps=steps)
        return to_structure(
            sequence, minimise(potential, TorsionDistribution.fit(prediction.torsions), settings).points
        )

    def fold(self, model: DistanceNetwork, alignment: Alignment) -> tuple[Structure, Tensor]:
        """The structure of the query, and for each residue the share, 0 to 100, of its pairs' probability that is
        within 2 Å of the structure's distances, where these are below 22 Å."""
        prediction = self.predict(model, alignment)
        structure = self.fold_prediction(prediction, alignment.query, model.reference.cpu())
        bins, known = measure_bins(structure, self.bins)
        near = (self.bins.centres - self.bins.centres[bins].unsqueeze(-1)).abs() < 2.0  # (L, L, K)
        share = (prediction.distances * near).sum(-1)
        counted = known & (bins < self.bins.count - 1)
        counted = counted.clone().fill_diagonal_(False)
        return structure, 100 * (share * counted).sum(-1) / counted.sum(-1).clamp(min=1)


class DistogramConfig(TaskConfig):
    """Distances of all pairs of residues from an alignment, and a structure by minimising their potential."""

    task_class = Distogram
    command = "fold"
    reads = "chains"
    kind: Literal["distogram"] = "distogram"
    auxiliary: float = Field(0.1, ge=0)  # weight of torsions, secondary structure and neighbours in the loss
    stride: int = Field(0, ge=0)  # between tiles at inference; 0: half a crop
    restarts: int = Field(3, ge=1)  # from the torsions, and as many from the best structure with noise
    minimise_steps: int = Field(200, ge=1)  # of L-BFGS from each start
    fold: int = Field(0, ge=0)  # test chains to fold in an evaluation
    # of the model; set by it
    crop: int = Field(64, ge=4)
    bins: int = Field(64, ge=2)
    torsion_bins: int = Field(36, ge=2)
    covariance: bool = True

    def for_model(self, model: ModelConfig) -> DistogramConfig:
        names = ("crop", "bins", "torsion_bins", "covariance")
        return self.replace(**{name: getattr(model, name) for name in names})
