"""Base of tasks on chains of proteins: their data, and how structures and contacts are scored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from headwise.blocks.evaluation import get_device
from headwise.data.config import DataConfig
from headwise.data.prepare import Prepared
from headwise.evaluate.bootstrap import bootstrap_interval
from headwise.evaluate.score import Score
from headwise.models.config import ModelConfig
from headwise.proteins.chain_sets import ChainDataConfig, Chains
from headwise.proteins.distograms import DistanceBins, compute_contact_probabilities
from headwise.proteins.metrics import compute_contact_precision, find_contacts
from headwise.proteins.residues import RESIDUE_TYPES
from headwise.proteins.structure import Structure
from headwise.tasks.base import Task, TaskConfig
from headwise.text.config import TokeniserConfig
from headwise.text.tokenisers import Tokenisers
from headwise.text.vocabulary import Characters
from headwise.utils.cpu import get_available_memory

METRICS = ("lDDT-Cα", "TM-score", "GDT-TS", "RMSD", "clashes")  # of `compare_structures`
SHARES = (5, 2, 1)  # contacts are judged among the L/5, L/2 and L most probable
CONTACT_SCORES = tuple("contacts L" if share == 1 else f"contacts L/{share}" for share in SHARES)
CUT_ADVICE = "cut the chain into domains"  # where memory does not suffice for one

Settings = TypeVar("Settings", bound=TaskConfig)
Model = TypeVar("Model", bound=nn.Module)


class ChainTask(Task[Settings, Model, Chains, Chains]):
    """A task on chains with alignments."""

    @classmethod
    def prepare(cls, data: DataConfig, tokeniser: TokeniserConfig | Tokenisers) -> Prepared:
        assert isinstance(data, ChainDataConfig)
        split, letters = data.load(), Characters(RESIDUE_TYPES)
        return Prepared(Tokenisers(letters, letters), split.train, split.valid, split.valid, split.test, split.files)

    def build(self, model: ModelConfig) -> Model:
        built: Model = model.build(0, 0, self.config.model_task)
        return built

    def load_test_pairs(self, data: DataConfig) -> Chains:
        assert isinstance(data, ChainDataConfig)
        split = data.load()
        return split.test if len(split.test) else split.valid


def get_free_memory(model: nn.Module) -> int:
    """Bytes that are free on the device of a model; 0 if the system does not report it."""
    device = get_device(model)
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else get_available_memory()


def score_contacts(distances: Tensor, bins: DistanceBins, true: Structure) -> list[float]:
    """The precision, 0 to 100, of the L/5, L/2 and L most probable contacts six or more residues apart, from
    distributions of distances (L, L, K)."""
    contacts, known = find_contacts(true)
    probabilities = compute_contact_probabilities(distances, bins)
    precision = compute_contact_precision(probabilities, contacts, known, "all", SHARES)
    return [100 * value for value in precision.values()]


def average_metrics(rows: Sequence[dict[str, float]], names: Sequence[str] = METRICS) -> list[Score]:
    """The means over chains of metrics of structures."""
    return [average_score(name, [row[name] for row in rows], get_unit(name)) for name in names]


def get_unit(name: str) -> str:
    """The unit in which a score is printed."""
    return "Å" if name == "RMSD" else "%" if name in CONTACT_SCORES else ""


def average_score(name: str, values: Sequence[float] | np.ndarray, unit: str) -> Score:
    """The mean over chains with its bootstrap interval; a chain without a value (NaN) is left out."""
    rows = np.column_stack([values, np.ones(len(values))])[~np.isnan(values)]
    mean = float(rows[:, 0].mean()) if len(rows) else float("nan")
    return Score(name, mean, *resample_ratio(rows), f"{len(rows)} chains", unit)


def resample_ratio(rows: np.ndarray) -> tuple[float, float]:
    """The bootstrap interval, over rows, of the ratio of the sums of two columns."""
    return bootstrap_interval(rows, lambda sums: sums[:, 0] / np.maximum(sums[:, 1], 1e-12))
