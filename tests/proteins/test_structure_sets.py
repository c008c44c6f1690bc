"""Real chains as data: parts, alignments, what is masked, and what is refused."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import torch

import headwise
from headwise.errors import UserError
from headwise.experiment.config import parse_experiment
from headwise.experiment.run import resume, train_experiment
from headwise.proteins.chains import ChainSettings, generate_chain
from headwise.proteins.distograms import DistanceBins
from headwise.proteins.readers.pdb_writer import format_pdb
from headwise.proteins.residues import CA
from headwise.proteins.structure_sets import StructuresConfig
from headwise.tasks.distogram_loss import IGNORED, CropSettings, cut_crop

SETTINGS = ChainSettings(min_length=14, max_length=14, rows=3, rounds=2, candidates=4)
CHAINS = [generate_chain(family, settings=SETTINGS) for family in range(5)]
TEXTS = [format_pdb(chain.structure) for chain in CHAINS]


def drop_residues(text: str, numbers: range, seqres: bool = True) -> str:
    """A PDB file without the atoms of some residues, and without the full sequence if it is not wanted."""
    lines = text.splitlines(keepends=True)
    gone = [line for line in lines if line.startswith("ATOM") and int(line[22:26]) in numbers]
    return "".join(line for line in lines if line not in gone and (seqres or not line.startswith("SEQRES")))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Five structures, one of them compressed; an alignment beside the first."""
    for number, text in enumerate(TEXTS[:4]):
        (tmp_path / f"{number}abc.pdb").write_text(text)
    (tmp_path / "4abc.ent.gz").write_bytes(gzip.compress(TEXTS[4].encode()))
    query = CHAINS[0].structure.sequence
    (tmp_path / "0abc.a3m").write_text(f">q\n{query}\n>r\n{query[:3]}-aa{query[4:]}\n")
    return tmp_path


def load(folder: Path, **settings: Any) -> Any:
    return StructuresConfig(root=str(folder), **settings).load()


def test_files_are_parts_and_alignments_of_one_row(folder: Path) -> None:
    split = load(folder, train=("[0-2]abc.pdb",), valid=("3abc.pdb",), test=("4abc.ent.gz",))
    assert [len(part) for part in (split.train, split.valid, split.test)] == [3, 1, 1]
    assert [path.name for path in split.files] == ["0abc.pdb", "1abc.pdb", "2abc.pdb", "3abc.pdb", "4abc.ent.gz"]
    for chain, truth in zip([*split.train, *split.valid, *split.test], CHAINS, strict=True):
        assert chain.structure.sequence == chain.alignment.query == truth.structure.sequence
        torch.testing.assert_close(chain.structure.atoms, truth.structure.atoms, atol=5.1e-4, rtol=0)
        assert len(chain.alignment) == 1
    assert split.train.take([2, 0])[0] is split.train[2]


def test_some_files_are_held_out_always_the_same(folder: Path) -> None:
    first, again = (load(folder, train=(".",), valid_fraction=0.2, test_fraction=0.4) for _ in range(2))
    assert [len(part) for part in (first.train, first.valid, first.test)] == [2, 1, 2]
    assert [c.path for c in first.train] == [c.path for c in again.train]
    assert len({chain.path for part in (first.train, first.valid, first.test) for chain in part}) == 5


def test_by_heart_all_parts_are_the_training_chains(folder: Path) -> None:
    split = load(folder, train=("0abc.pdb", "1abc.pdb"), by_heart=True)
    assert split.train is split.valid is split.test and len(split.files) == 2


def test_alignments_stand_beside_the_structures(folder: Path) -> None:
    split = load(folder, train=("0abc.pdb",), by_heart=True, alignments=".")
    alignment = split.train[0].alignment
    assert len(alignment) == 2 and int(alignment.deletions.sum()) == 2
    assert [path.name for path in split.files] == ["0abc.pdb", "0abc.a3m"]
    (folder / "more").mkdir()
    (folder / "0abc.a3m").rename(folder / "more" / "0abc_A.a3m")
    assert len(load(folder, train=("0abc.pdb",), by_heart=True, alignments="more").train[0].alignment) == 2


def test_a_named_set_is_below_the_data_root(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "proteins").mkdir()
    (folder / "proteins" / "structures").symlink_to(folder)
    monkeypatch.setenv("HEADWISE_DATA", str(folder))
    assert len(StructuresConfig(name="proteins", train=("0abc.pdb",), by_heart=True).load().train) == 1
    monkeypatch.delenv("HEADWISE_DATA")
    with pytest.raises(UserError, match=r"set data.root or the environment variable HEADWISE_DATA"):
        StructuresConfig(name="proteins", train=("0abc.pdb",), by_heart=True).load()


def test_residues_without_coordinates_are_masked_if_that_is_said(folder: Path) -> None:
    (folder / "gap.pdb").write_text(drop_residues(TEXTS[0], range(6, 9)))
    with pytest.raises(UserError, match=r'gap.pdb: chain A is broken after residue 5; .*data.incomplete = "mask"'):
        load(folder, train=("gap.pdb",), by_heart=True)
    chain = load(folder, train=("gap.pdb",), by_heart=True, incomplete="mask").train[0]
    assert chain.structure.sequence == CHAINS[0].structure.sequence
    assert chain.structure.mask[:, CA].int().tolist() == [1] * 5 + [0] * 3 + [1] * 6
    crop = cut_crop(chain, CropSettings(14, DistanceBins(), 6, covariance=False), 0, 0)
    known = [5, 6, 7]
    assert (crop.distances[known] == IGNORED).all() and (crop.neighbours[0, known] == IGNORED).all()
    assert (crop.secondary == IGNORED).all()
    # torsions need the neighbours of a residue, too
    assert (crop.torsions[0] == IGNORED).nonzero().flatten().tolist() == [0, 4, 5, 6, 7, 8, 13]
    whole = cut_crop(CHAINS[0], CropSettings(14, DistanceBins(), 6, covariance=False), 0, 0)
    seen = crop.distances != IGNORED
    assert torch.equal(crop.distances[seen], whole.distances[seen])


def make_bad_files(folder: Path) -> None:
    text = TEXTS[0]
    (folder / "cut.pdb").write_text(drop_residues(text, range(6, 9), seqres=False))
    (folder / "odd.pdb").write_text(text.replace("ALA", "XYZ").replace("LEU", "XYZ").replace("VAL", "XYZ"))
    (folder / "short.pdb").write_text(drop_residues(text, range(3, 99), seqres=False))
    (folder / "prose.pdb").write_text("once upon a time\n")
    (folder / "empty.pdb").write_text("")
    (folder / "copy.pdb").write_text(text)
    (folder / "1abc.sto").write_text("# STOCKHOLM 1.0\nq MKV\n//\n")
    (folder / "2abc.a3m").write_text(">q\n" + "W" * 14 + "\n")


BAD = {
    "cut.pdb": "is broken after residue 5; choose another chain",
    "odd.pdb": "of chain A is no known amino acid; choose another chain",
    "short.pdb": "chain A has fewer than 3 residues with Cα",
    "prose.pdb": "has no ATOM lines, so it is no PDB file",
    "empty.pdb": "has no ATOM lines, so it is no PDB file",
    "absent.pdb": "there is no such file",
    "*.cif": "no file matches this pattern",
    "0abc.a3m": "structures are read from .pdb",
}


@pytest.mark.parametrize(("name", "sentence"), BAD.items(), ids=BAD)
def test_what_cannot_be_learnt_is_refused_in_a_sentence(folder: Path, name: str, sentence: str) -> None:
    make_bad_files(folder)
    with pytest.raises(UserError) as error:
        load(folder, train=(name,), by_heart=True)
    assert sentence in str(error.value) and name in str(error.value) and "\n" not in str(error.value)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"train": "cut.pdb", "by_heart": True, "incomplete": "mask"}, "the file does not list the residues between"),
    ({"train": "0abc.pdb", "by_heart": True, "chain": "Z"}, "has no protein chain 'Z'; it has A"),
    ({"train": "3abc.pdb", "by_heart": True, "alignments": "."}, "has no alignment of it; add 3abc.a3m or 3abc.sto"),
    ({"train": "1abc.pdb", "by_heart": True, "alignments": "."}, "its query has 3 residues and chain A of"),
    ({"train": "2abc.pdb", "by_heart": True, "alignments": "."}, "its query has W at residue"),
    ({"train": "0abc.pdb", "valid": "copy.pdb"}, "data.valid has a sequence that is trained on"),
    ({"train": "0abc.pdb", "valid": "1abc.pdb", "test": "0abc.pdb"}, "data.test has a sequence that is trained on"),
    ({"train": "0abc.pdb"}, "no file is left to train on when some are held out"),
    ({"train": "0abc.pdb", "by_heart": True, "name": "protein"}, "no set of structures is called 'protein'"),
]


@pytest.mark.parametrize(("settings", "sentence"), WRONG)
def test_wrong_settings_are_refused_in_a_sentence(folder: Path, settings: dict[str, Any], sentence: str) -> None:
    make_bad_files(folder)
    with pytest.raises(UserError) as error:
        load(folder, **settings)
    assert sentence in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ({}, "there is nothing to learn from; set `train`"),
        ({"train": "a.pdb", "by_heart": True, "test": "b.pdb"}, "leave out `valid` and `test`"),
        ({"train": "a.pdb", "valid_fraction": 0.5, "test_fraction": 0.5}, "leave nothing to train on"),
    ],
)
def test_contradictions_are_refused(data: dict[str, Any], sentence: str) -> None:
    experiment = {"task": "fold", "model": "alphafold2-tiny", "train": {"steps": 1}}
    with pytest.raises(UserError, match=sentence):
        parse_experiment({**experiment, "data": {"kind": "structures", **data}})


TASKS = {
    "fold": {"task": {"kind": "fold", "clusters": 2, "extra": 0}, "model": {"kind": "alphafold2-tiny", "recycles": 0}},
    "distogram": {"task": {"kind": "distogram"}, "model": {"kind": "alphafold1-tiny"}},
}


@pytest.mark.parametrize("kind", TASKS)
def test_an_experiment_keeps_the_digests_of_its_files(folder: Path, tmp_path: Path, kind: str) -> None:
    """Both tasks train on chains that have no states of secondary structure, and refuse changed files."""
    data = {"kind": "structures", "root": str(folder), "train": "0abc.pdb", "by_heart": True, "alignments": "."}
    train = {"steps": 2, "batch_size": 1, "threads": 1, "log_every": 1}
    run, _ = train_experiment(parse_experiment({**TASKS[kind], "data": data, "train": train}), tmp_path / "runs")
    files = json.loads((run.path / "data.json").read_text())["files"]
    assert [Path(file["path"]).name for file in files] == ["0abc.pdb", "0abc.a3m"]
    losses = [row["loss"] for row in run.metrics.rows() if row.get("loss") is not None]
    assert len(losses) == 2 and all(torch.tensor(losses).isfinite())
    names = [score.name for score in headwise.load(run.path).evaluate().scores]
    assert "contacts L" in names and "Q3" not in names
    (folder / "0abc.pdb").write_text(TEXTS[0] + "REMARK\n")
    with pytest.raises(UserError, match=r"0abc.pdb has changed .* since this run was trained"):
        resume(run.path, steps=1)
