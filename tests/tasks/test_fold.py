"""The fold task: from an experiment to a PDB file, and what memory does not allow."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import headwise
from headwise.catalog import CATALOG
from headwise.cli.main import main
from headwise.errors import UserError
from headwise.experiment.config import parse_experiment
from headwise.experiment.load import load
from headwise.experiment.run import train_experiment
from headwise.models.cost import count_saved_bytes
from headwise.models.folding_heads import DISTOGRAM_BINS
from headwise.models.folding_memory import (
    Alignments,
    check_length,
    estimate_bytes,
    estimate_map_bytes,
    find_longest,
)
from headwise.proteins.alignments import make_single_row
from headwise.proteins.chains import ChainSettings, generate_chain
from headwise.proteins.distograms import DistanceBins, measure_bins
from headwise.proteins.features import Features, MsaSettings, make_blank_features
from headwise.proteins.readers.structures import read_chain
from headwise.proteins.residues import RESIDUE_TYPES
from headwise.tasks import chain_task, fold
from headwise.tasks.distogram import DistogramConfig
from headwise.testing import perturb_parameters
from headwise.text.tokenisers import Tokenisers
from headwise.text.vocabulary import Characters
from headwise.train.state import LossState

EXPERIMENT: dict[str, Any] = {
    "task": {"kind": "fold", "crop": 10, "clusters": 3, "extra": 2, "weights": {"violation": 1.0}},
    "data": {
        "families": 2, "members": 1, "valid_families": 1, "test_families": 2,
        "rows": 5, "min_length": 12, "max_length": 14,
    },
    "model": {"kind": "alphafold2-tiny"},
    "train": {"steps": 2, "batch_size": 2, "threads": 1, "log_every": 1},
}  # fmt: skip


def test_an_experiment_is_trained_evaluated_and_folds_a_query(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, _ = train_experiment(parse_experiment(EXPERIMENT), tmp_path)
    losses = [row["loss"] for row in run.metrics.rows() if row.get("loss") is not None]
    assert len(losses) == 2 and run.state["best"]["name"] == "lddt"
    evaluation = load(run.path).evaluate()
    assert [score.name for score in evaluation.scores][:2] == ["lDDT-Cα", "TM-score"]
    assert len(evaluation.sources) == 2 and all(score.value >= 0 for score in evaluation.scores)
    query = tmp_path / "query.a3m"
    query.write_text(">q\nMKTWYVDEG\n>r\nMKTW-VDaEG\n")
    assert main(["fold", str(run.path), str(query), "--out", str(tmp_path / "query.pdb")]) in (0, None)
    structure = read_chain(tmp_path / "query.pdb")
    assert structure.sequence == "MKTWYVDEG" and structure.mask.sum() == 78  # heavy atoms: 8+9+7+14+12+7+8+9+4
    capsys.readouterr()


def test_the_longest_chain_is_computed_and_longer_ones_are_refused() -> None:
    config, rows, parameters = CATALOG["alphafold2"].configure("base"), Alignments(128, 1024), 93_236_826
    available = 16 * 10**9

    def estimate(length: int) -> int:
        return estimate_bytes(config, parameters, length, rows, training=False)

    def estimate_step(length: int) -> int:
        return estimate_bytes(config, parameters, length, rows, training=True)

    longest = find_longest(estimate, available)
    assert 500 < longest < 3000
    check_length(estimate, longest, available, "cut it")
    with pytest.raises(
        UserError, match=rf"a chain of {longest + 1:,} residues needs about 16.0 GB and 16.0 GB are free"
    ):
        check_length(estimate, longest + 1, available, "cut it")
    check_length(estimate, 10**6, 0, "cut it")  # the system does not report its memory
    training = [estimate_step(256)]
    training.append(estimate_bytes(config.replace(checkpointing=True), parameters, 256, rows, training=True))
    assert training[1] < training[0] / 5 and find_longest(estimate_step, 10**9) == 0
    with pytest.raises(UserError, match="no chain fits; choose a smaller model"):
        check_length(estimate_step, 64, 10**9, "cut it")


def test_the_estimate_is_near_what_autograd_stores(monkeypatch: pytest.MonkeyPatch) -> None:
    length, clusters, extra = 48, 8, 16
    model: Any = headwise.build("alphafold2-small", device="meta", recycles=0)
    settings = MsaSettings(clusters, extra)

    def make_inputs(rows: int, length: int) -> tuple[Features]:
        return (make_blank_features(rows, length, settings, device="meta"),)

    monkeypatch.setattr(model, "make_blank_inputs", make_inputs)
    stored = count_saved_bytes(model, 1, length, ())
    config = CATALOG["alphafold2"].configure("small")
    estimate = estimate_bytes(config, 0, length, Alignments(clusters, extra), training=True)
    assert 0.9 < estimate / stored < 2


def test_a_task_refuses_a_chain_before_it_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    letters = Characters(RESIDUE_TYPES)
    task = fold.Fold(fold.FoldConfig(), Tokenisers(letters, letters))
    chain = generate_chain(0, 0, ChainSettings(min_length=12, max_length=12, rows=2))
    model: Any = headwise.build("alphafold2-tiny")
    monkeypatch.setattr(chain_task, "get_available_memory", lambda: 10**6)
    with pytest.raises(UserError, match="a chain of 12 residues needs about"):
        task.fold(model, chain.alignment)
    monkeypatch.undo()
    structure, confidence = task.fold(model, chain.alignment)
    assert structure.sequence == chain.structure.sequence and confidence.shape == (12,)
    assert torch.isfinite(structure.atoms).all()


def test_without_the_alignment_the_query_is_all_that_is_read() -> None:
    """With `max_rows = 1` the other rows change neither the prediction nor the loss; without it they do."""
    letters = Characters(RESIDUE_TYPES)
    chain = generate_chain(0, 0, ChainSettings(min_length=12, max_length=12, rows=6))
    alone = make_single_row(chain.alignment.query)
    torch.manual_seed(0)
    model: Any = perturb_parameters(headwise.build("alphafold2-tiny", recycles=0)).float()
    for most, same in ((1, True), (0, False)):
        task = fold.FoldConfig(clusters=4, extra=2, max_rows=most).build(Tokenisers(letters, letters))
        atoms = [task.fold(model, rows)[0].atoms for rows in (chain.alignment, alone)]
        losses = []
        for rows in (chain.alignment, alone):
            torch.manual_seed(1)
            losses.append(task.loss(model.eval(), fold.ChainBatch(((chain.structure, rows),)), LossState()).total)
        assert torch.allclose(*atoms) == same and torch.allclose(*losses) == same


def test_the_longest_chain_of_alphafold1_is_computed() -> None:
    """The estimate is dominated by the covariances of all columns, two tables of (22 L)^2 floats."""
    estimate = partial(estimate_map_bytes, 10**6, rows=64, bins=64, covariance=False)
    assert 1.0 < estimate(1000) / (2 * (22 * 1000) ** 2 * 4) < 1.5
    letters = Characters(RESIDUE_TYPES)
    task = DistogramConfig().for_model(CATALOG["alphafold1"].configure("tiny")).build(Tokenisers(letters, letters))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chain_task, "get_available_memory", lambda: 10**9)
        with pytest.raises(
            UserError, match=r"a chain of 1,000 residues needs about 5.1 GB .* at most 4.. residues fit"
        ):
            task.fold(headwise.build("alphafold1-tiny"), make_single_row("A" * 1000))


def test_contacts_are_scored_by_the_distogram() -> None:
    """The true distances have all contacts right, their mirror none; a chain of 30 residues has six pairs at L/5."""
    chain, bins = generate_chain(1, 0, ChainSettings(min_length=30, max_length=30, rows=1)), DistanceBins()
    numbers, known = measure_bins(chain.structure, bins)
    right, wrong = (torch.nn.functional.one_hot(places, 64).float() for places in (numbers, 63 - numbers))
    contacts = (numbers < 19)[known.triu(6)]  # surely within 8 Å
    assert int(contacts.sum()) >= 6
    assert chain_task.score_contacts(right, bins, chain.structure)[0] == 100
    assert chain_task.score_contacts(wrong, bins, chain.structure)[0] == 0


def test_bins_of_distances_are_those_of_the_paper() -> None:
    """64 bins whose inner edges are equally spaced from 2.3125 to 21.6875 Å."""
    centres = 2.15625 + 0.3125 * torch.arange(-4, 70)  # and points well within the bins
    distances = torch.cat((centres - 0.1, centres, centres + 0.1))
    expected = torch.bucketize(distances, torch.linspace(2.3125, 21.6875, 63))
    assert torch.equal(DistanceBins(DISTOGRAM_BINS).assign(distances), expected)
