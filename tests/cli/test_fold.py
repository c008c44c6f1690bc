"""`headwise fold`: a sequence and an alignment in, a PDB file that other programs open out; and what it refuses."""

from pathlib import Path
from typing import Any

import biotite.structure.io.pdb as biotite_pdb
import gemmi
import pytest
import torch

import headwise
from headwise.cli.main import main
from headwise.experiment.config import parse_experiment
from headwise.experiment.run import train_experiment
from headwise.proteins.alignments import make_single_row
from headwise.proteins.readers.alignments import read_alignment
from headwise.tasks import chain_task

SEQUENCE = "MKTWYVDEG"
FILES = {
    "s.fasta": f">s\n{SEQUENCE.lower()}\n",
    "two.fasta": ">a\nMKT\n>b\nMKV\n",
    "bad.fasta": ">s\nMK7\n",
    "empty.fasta": "",
    "unnamed.fasta": ">s\n",
    "unknown.fasta": ">s\nMKXWY\n",
    "s.a3m": f">q\n{SEQUENCE}\n>r\nMKTW-VDaEG\n",
    "s.sto": f"# STOCKHOLM 1.0\nq {SEQUENCE}\nr MKTW-VDEG\n//\n",
    "other.a3m": ">q\nMKTWYVDEA\n",
    "short.a3m": ">q\nMKT\n",
    "ragged.a3m": f">q\n{SEQUENCE}\n>r\nMKT\n",
    "ragged.sto": f"# STOCKHOLM 1.0\nq {SEQUENCE}\nr MKT\n//\n",
    "strange.a3m": f">q\n{SEQUENCE}\n>r\nMKTW7VDEG\n",
    "gap.a3m": ">q\nMKT-YVDEG\n",
    "empty.a3m": "",
    "empty.sto": "",
    "prose.sto": "once upon a time\n",
    "s.txt": SEQUENCE,
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    experiment: dict[str, Any] = {
        "task": {"kind": "fold", "crop": 10, "clusters": 3, "extra": 2},
        "data": {"families": 1, "members": 1, "valid_families": 1, "test_families": 1,
                 "rows": 3, "min_length": 12, "max_length": 12},
        "model": {"kind": "alphafold2-tiny"},
        "train": {"steps": 1, "batch_size": 1, "threads": 1},
    }  # fmt: skip
    return train_experiment(parse_experiment(experiment), tmp_path_factory.mktemp("fold"))[0].path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("msa", ["", "s.a3m", "s.sto"])
def test_the_file_opens_in_gemmi_and_biotite(
    run: Path, folder: Path, msa: str, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["fold", str(run), "s.fasta", *(["--msa", msa] if msa else []), "--out", "model.pdb"])
    assert capsys.readouterr().out.strip() == "model.pdb"
    loaded = headwise.load(run)
    rows = read_alignment(folder / msa) if msa else make_single_row(SEQUENCE)
    structure, confidence = loaded.check_command("fold").fold(loaded.model, rows)
    chain = gemmi.read_structure("model.pdb")[0]["A"]
    assert gemmi.one_letter_code([residue.name for residue in chain]) == SEQUENCE
    array = biotite_pdb.PDBFile.read("model.pdb").get_structure(model=1, extra_fields=["b_factor"])
    assert array.array_length() == int(structure.mask.sum()) == sum(map(len, chain)) == 78
    alpha = array[array.atom_name == "CA"]
    torch.testing.assert_close(torch.tensor(alpha.b_factor).float(), confidence.float(), atol=5.1e-3, rtol=0)
    torch.testing.assert_close(torch.tensor(alpha.coord), structure.get_atoms("CA")[0], atol=5.1e-4, rtol=0)


def test_an_unknown_residue_has_a_backbone(run: Path, folder: Path) -> None:
    main(["fold", str(run), "unknown.fasta"])
    chain = gemmi.read_structure("unknown.pdb")[0]["A"]
    assert [residue.name for residue in chain][2] == "UNK" and len(chain[2]) == 5


BAD = {
    ("two.fasta",): "two.fasta: has 2 sequences, and one is folded",
    ("bad.fasta",): "bad.fasta, line 1: '7' is no amino acid",
    ("empty.fasta",): "empty.fasta: has no sequences",
    ("unnamed.fasta",): "unnamed.fasta, line 1: has no sequence",
    ("absent.fasta",): "absent.fasta: there is no such file",
    ("s.txt",): "s.txt: alignments are read from",
    ("gap.a3m",): "gap.a3m: the query, its first row, has a gap in column 4",
    ("s.a3m", "--msa", "s.a3m"): "s.a3m: with --msa, give the sequence alone as a FASTA file",
    ("s.fasta", "--msa", "other.a3m"): "other.a3m: its query has A at residue 9, s.fasta G",
    ("s.fasta", "--msa", "short.a3m"): "short.a3m: its query has 3 residues and s.fasta 9",
    ("s.fasta", "--msa", "ragged.a3m"): "ragged.a3m: row 2 (r) has 3 columns and the query 9",
    ("s.fasta", "--msa", "ragged.sto"): "ragged.sto: row 2 (r) has 3 columns and the query 9",
    ("s.fasta", "--msa", "strange.a3m"): "strange.a3m: row 2 (r) has '7', which is no amino acid",
    ("s.fasta", "--msa", "empty.a3m"): "empty.a3m: has no sequences",
    ("s.fasta", "--msa", "empty.sto"): "empty.sto: the alignment is empty",
    ("s.fasta", "--msa", "prose.sto"): "prose.sto: a Stockholm file begins with",
    ("s.fasta", "--msa", "s.txt"): "s.txt: alignments are read from",
    ("s.fasta", "--out", "no/model.pdb"): "--out no/model.pdb: there is no folder no",
    ("s.fasta", "--out", "model.cif"): "--out model.cif: structures are written as PDB files",
}


@pytest.mark.parametrize(("arguments", "sentence"), BAD.items(), ids=[" ".join(key) for key in BAD])
def test_bad_input_is_told_in_a_sentence(
    run: Path, folder: Path, arguments: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["fold", str(run), *arguments])
    error = capsys.readouterr().err.strip()
    assert exit_.value.code == 2 and sentence in error and len(error.splitlines()) == 1
    assert not list(folder.glob("*.pdb"))


def test_a_chain_beyond_the_memory_is_refused_before_it_is_tried(
    run: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(chain_task, "get_available_memory", lambda: 10**9)
    (folder / "long.fasta").write_text(">l\n" + "A" * 5000 + "\n")
    with pytest.raises(SystemExit) as exit_:
        main(["fold", str(run), "long.fasta"])
    error = capsys.readouterr().err
    assert exit_.value.code == 2 and "a chain of 5,000 residues needs about" in error and "residues fit" in error
    assert not (folder / "long.pdb").exists()
