"""`headwise inspect` of runs that fold chains."""

import json
from pathlib import Path

import pytest
import torch

from headwise.config.base import validate
from headwise.experiment.config import Experiment
from headwise.inference.trained_model import TrainedModel
from headwise.proteins.residues import RESIDUE_TYPES
from headwise.text.tokenisers import Tokenisers
from headwise.text.vocabulary import Characters

EXPERIMENT = {
    "task": {"kind": "fold", "clusters": 2, "extra": 2},
    "data": {"min_length": 12, "max_length": 12, "rows": 4, "families": 1, "valid_families": 1, "test_families": 2},
    "model": "alphafold2-tiny",
    "train": {"steps": 1},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    torch.manual_seed(0)
    experiment = validate(Experiment, EXPERIMENT)
    tokenisers = Tokenisers(*[Characters(RESIDUE_TYPES)] * 2)
    model = experiment.create_task(tokenisers).build(experiment.model)
    return TrainedModel(model, tokenisers, experiment).save(tmp_path_factory.mktemp("folded") / "run").path


def test_a_chain_is_drawn_in_every_form(headwise, run: Path, tmp_path: Path) -> None:
    page = headwise("inspect", run)
    assert (page.status, page.out) == (0, "folding.html\n")
    assert "run: test chain 1" in Path("folding.html").read_text()
    picture = headwise("inspect", run, "2", "--view", "distances", "--out", "d.png")
    assert picture.status == 0 and "lDDT-Cα" in picture.out and Path("d.png").read_bytes().startswith(b"\x89PNG")
    numbers = headwise("inspect", run, "--view", "alignment", "--kind", "starting", "--line", 3, "--head", 1, "--json")
    weights = torch.tensor(json.loads(numbers.out)["weights"])
    assert weights.shape == (12, 12) and torch.allclose(weights.sum(-1), torch.ones(12), atol=1e-3)
    (tmp_path / "own.fasta").write_text(">own\nMKVLAW\n")
    own = headwise("inspect", run, "own.fasta", "--view", "structure", "--out", "s.svg")
    assert own.status == 0 and "run: own.fasta" in Path("s.svg").read_text()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["9"], "there is no test chain 9; this run has 2"),
        (["0"], "there is no test chain 0"),
        (["nothing.a3m"], "nothing.a3m"),
        (["words.txt"], "alignments are read from"),
        (["1", "--target", "x.pdb"], "--target: the true structure of a test chain is known"),
        (["--at", "1", "2"], "this run reads chains"),
        (["--view", "rollout"], "--view rollout: is not of chains"),
        (["--view", "heads", "--kind", "cross"], "--kind cross"),
        (["--view", "distances", "--line", "1"], "has nothing to do with --line"),
        (["--out", "x.html", "--layer", "1"], "a page has every view"),
        (["--view", "heads", "--out", "x.txt"], "the file ends in '.txt'"),
        (["--spectrum"], "encoders"),
        (["--experts"], "experts"),
    ],
)
def test_mistakes_are_one_sentence(headwise, run: Path, arguments: list[str], says: str) -> None:
    outcome = headwise("inspect", run, *arguments)
    assert outcome.status == 2 and says in outcome.err and outcome.err.count("\n") == 1
    assert not list(Path().glob("*.*"))


def test_lines_of_chains_are_not_for_texts(headwise, tmp_path: Path) -> None:
    given = {"task": "transduce", "model": "transformer-tiny", "data": {"train": "none.tsv"}, "train": {"steps": 1}}
    experiment, tokenisers = validate(Experiment, given), Tokenisers(*[Characters("abc")] * 2)
    model = experiment.create_task(tokenisers).build(experiment.model)
    text_run = TrainedModel(model, tokenisers, experiment).save(tmp_path / "text").path
    for option in (["--line", "2"], ["--kind", "starting"]):
        outcome = headwise("inspect", text_run, "abc", *option)
        assert outcome.status == 2 and "this run reads none" in outcome.err
