"""`headwise compare-structures`: the scores of a prediction, and files that are none."""

import json
from dataclasses import replace

import pytest
import torch

from headwise.proteins.chains import ChainSettings, generate_chain
from headwise.proteins.readers.pdb_writer import write_pdb

SETTINGS = ChainSettings(min_length=24, max_length=24, rows=2, rounds=2, candidates=4)


@pytest.fixture
def chain(tmp_path):
    structure = generate_chain(0, settings=SETTINGS).structure
    write_pdb(tmp_path / "true.pdb", structure)
    return structure


def test_scores_are_printed(headwise, chain, tmp_path):
    noise = 0.3 * torch.randn(chain.atoms.shape, generator=torch.Generator().manual_seed(0))
    write_pdb(tmp_path / "noisy.pdb", replace(chain, atoms=chain.atoms + noise))
    outcome = headwise("compare-structures", "true.pdb", "true.pdb", "--json")
    assert json.loads(outcome.out)["TM-score"] == pytest.approx(1)
    outcome = headwise("compare-structures", "noisy.pdb", "true.pdb")
    assert outcome.status == 0 and "lDDT 0." in outcome.out and "RMSD 0." in outcome.out


def test_bad_files_are_one_sentence(headwise, chain, tmp_path):
    (tmp_path / "text.pdb").write_text("hello\n")
    write_pdb(tmp_path / "other.pdb", chain.select(slice(0, 20)))
    for name, sentence in (
        ("text.pdb", "text.pdb: has no ATOM lines, so it is no PDB file"),
        ("none.pdb", "none.pdb: there is no such file"),
        ("other.pdb", "have different sequences; compare structures of one sequence"),
    ):
        outcome = headwise("compare-structures", name, "true.pdb")
        assert outcome.status == 2 and sentence in outcome.err and len(outcome.err.splitlines()) == 1
