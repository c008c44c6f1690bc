"""The fold task: from an experiment to a PDB file, and what memory does not allow."""

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
from headwise.models.folding_memory import Alignments, check_length, estimate_bytes, find_longest
from headwise.proteins.features import Features, MsaSettings, make_blank_features
from headwise.proteins.readers.structures import read_chain

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


@pytest.mark.parametrize(
    ("text", "told"),
    [(">q\nMKT\n>r\nMK\n", "row 2"), (">q\nMK7\n", "7"), ("", "no sequences")],
    ids=["lengths", "letters", "empty"],
)
def test_bad_alignments_are_told_in_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, told: str
) -> None:
    query = tmp_path / "query.a3m"
    query.write_text(text)
    with pytest.raises(SystemExit) as exit_:
        main(["fold", str(tmp_path), str(query)])
    error = capsys.readouterr().err
    assert exit_.value.code == 2 and told in error and len(error.strip().splitlines()) == 1
    assert not list(tmp_path.glob("*.pdb"))


def test_the_longest_chain_is_computed_and_longer_ones_are_refused() -> None:
    config, rows, parameters = CATALOG["alphafold2"].configure("base"), Alignments(128, 1024), 93_236_826
    available = 16 * 10**9
    longest = find_longest(config, parameters, rows, False, available)
    assert 500 < longest < 3000
    check_length(config, parameters, longest, rows, False, available)
    with pytest.raises(
        UserError, match=rf"a chain of {longest + 1:,} residues needs about 16.0 GB and 16.0 GB are free"
    ):
        check_length(config, parameters, longest + 1, rows, False, available)
    check_length(config, parameters, 10**6, rows, False, 0)  # the system does not report its memory
    training = [estimate_bytes(config, parameters, 256, rows, training=True)]
    training.append(estimate_bytes(config.replace(checkpointing=True), parameters, 256, rows, training=True))
    assert training[1] < training[0] / 5 and find_longest(config, parameters, rows, True, 10**9) == 0
    with pytest.raises(UserError, match="no chain fits; choose a smaller model"):
        check_length(config, parameters, 64, rows, True, 10**9)


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
    from headwise.proteins.chains import ChainSettings, generate_chain
    from headwise.proteins.residues import RESIDUE_TYPES
    from headwise.tasks import fold
    from headwise.text.tokenisers import Tokenisers
    from headwise.text.vocabulary import Characters

    letters = Characters(RESIDUE_TYPES)
    task = fold.Fold(fold.FoldConfig(), Tokenisers(letters, letters))
    chain = generate_chain(0, 0, ChainSettings(min_length=12, max_length=12, rows=2))
    model: Any = headwise.build("alphafold2-tiny")
    monkeypatch.setattr(fold, "get_available_memory", lambda: 10**6)
    with pytest.raises(UserError, match="a chain of 12 residues needs about"):
        task.fold(model, chain.alignment)
    monkeypatch.undo()
    structure, confidence = task.fold(model, chain.alignment)
    assert structure.sequence == chain.structure.sequence and confidence.shape == (12,)
    assert torch.isfinite(structure.atoms).all()
