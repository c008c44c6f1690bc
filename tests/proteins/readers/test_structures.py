"""Structure files: own readers beside gemmi and biotite on small files, and what they refuse."""

import gzip

import biotite.structure.io.pdb as biotite_pdb
import gemmi
import pytest
import torch

from headwise.errors import UserError
from headwise.proteins.chains import ChainSettings, generate_chain
from headwise.proteins.readers.atom_sites import align_observed
from headwise.proteins.readers.mmcif import read_tables
from headwise.proteins.readers.pdb_writer import format_pdb, write_pdb
from headwise.proteins.readers.structures import read_chain, read_chains
from headwise.proteins.residues import ATOMS, CA, CB, C, N

SETTINGS = ChainSettings(min_length=24, max_length=24, rows=2, rounds=2, candidates=4)


def atom_line(serial, atom, residue, number, xyz, chain="A", altloc=" ", code=" ", occupancy=1.0, record="ATOM"):
    x, y, z = xyz
    place = f"{x:8.3f}{y:8.3f}{z:8.3f}{occupancy:6.2f}{0:6.2f}"
    name = f"{atom:<3}{altloc}{residue:>3} {chain}{number:>4}{code}"
    return f"{record:<6}{serial:5d}  {name}   {place}          {atom[0]:>2}"


# Alternate locations (B has more occupancy), two residues 2 and 2A, a chain break, MSE, a residue that is not known,
# a missing atom, water, and what follows TER.
LINES = [
    "SEQRES   1 A    8  GLY ALA SER MSE ALA GLY XYZ ALA",
    *(atom_line(n, atom, "ALA", 1, (n, 0, 0)) for n, atom in enumerate(("N", "CA", "C", "O"), 1)),
    atom_line(5, "CB", "ALA", 1, (9, 9, 9), altloc="A", occupancy=0.3),
    atom_line(6, "CB", "ALA", 1, (8, 8, 8), altloc="B", occupancy=0.7),
    *(atom_line(n, atom, "SER", 2, (n - 2.7, 0, 0)) for n, atom in enumerate(("N", "CA", "C"), 7)),
    *(atom_line(n, atom, "MSE", 2, (n - 4.4, 0, 0), code="A", record="HETATM") for n, atom in ((11, "N"), (12, "CA"))),
    atom_line(13, "SE", "MSE", 2, (5, 5, 5), code="A", record="HETATM"),
    *(atom_line(n, atom, "XYZ", 9, (n + 20, 0, 0), record="HETATM") for n, atom in ((14, "N"), (15, "CA"), (16, "C"))),
    "TER      17      XYZ A   9",
    atom_line(18, "O", "HOH", 101, (1, 1, 1), record="HETATM"),
    "END",
]


@pytest.fixture
def odd(tmp_path):
    path = tmp_path / "odd.pdb"
    path.write_text("\n".join(LINES) + "\n")
    return path


def test_gaps_insertion_codes_alternate_locations_and_missing_atoms(odd):
    chain = read_chain(odd)
    assert chain.sequence == "GASMAGXA"  # of SEQRES, with residues that have no coordinates
    assert chain.residue_numbers == ("", "1", "2", "2A", "", "", "9", "")
    assert chain.mask.any(1).tolist() == [False, True, True, True, False, False, True, False]
    assert chain.atoms[1, CB].tolist() == [8, 8, 8]
    assert chain.atoms[3, ATOMS.index("SD")].tolist() == [5, 5, 5]  # selenium takes the place of sulfur
    assert not chain.mask[2, ATOMS.index("OG")] and not chain.mask[3, C]
    assert 1 not in chain.find_breaks() and {0, 3, 5} <= set(chain.find_breaks())


def test_a_compressed_file_is_the_same(odd):
    packed = odd.with_name("odd.pdb.gz")
    packed.write_bytes(gzip.compress(odd.read_bytes()))
    assert torch.equal(read_chain(packed).atoms, read_chain(odd).atoms)


def test_mmcif_that_gemmi_writes_is_read_as_the_pdb_file(odd, tmp_path):
    structure = gemmi.read_structure(str(odd))
    structure.setup_entities()
    structure.assign_label_seq_id()
    path = tmp_path / "odd.cif"
    structure.make_mmcif_document().write_file(str(path))
    ours, theirs = read_chain(odd), read_chain(path)
    known = ours.mask.any(1)
    assert ours.sequence == theirs.sequence or "".join(
        letter for letter, seen in zip(ours.sequence, known, strict=True) if seen
    ) == theirs.sequence.replace("-", "")
    seen = theirs.mask.any(1)
    assert torch.equal(ours.mask[known], theirs.mask[seen])
    torch.testing.assert_close(ours.atoms[known], theirs.atoms[seen], atol=1e-3, rtol=0)


def test_written_files_open_in_gemmi_and_biotite(tmp_path):
    chain = generate_chain(0, settings=SETTINGS).structure
    confidence = torch.linspace(10, 99, len(chain))
    path = write_pdb(tmp_path / "chain.pdb", chain, confidence)
    again = read_chain(path)
    assert (again.sequence, again.residue_numbers) == (chain.sequence, chain.residue_numbers)
    torch.testing.assert_close(again.atoms, chain.atoms, atol=5.1e-4, rtol=0)
    model = gemmi.read_structure(str(path))[0]
    assert gemmi.one_letter_code([residue.name for residue in model["A"]]) == chain.sequence
    array = biotite_pdb.PDBFile.read(path).get_structure(model=1, extra_fields=["b_factor"])
    assert array.array_length() == int(chain.mask.sum()) == sum(len(residue) for residue in model["A"])
    alpha = array[array.atom_name == "CA"]
    torch.testing.assert_close(
        torch.tensor(alpha.b_factor), confidence.double(), atol=5.1e-3, rtol=0, check_dtype=False
    )
    torch.testing.assert_close(torch.tensor(alpha.coord), chain.atoms[:, CA], atol=5.1e-4, rtol=0)


def test_an_aligned_sequence_cuts_as_few_bonds_as_possible():
    names = ["ALA", "GLY", "ALA", "GLY", "SER"]
    assert align_observed("AGS", names, [False, True, False]) in ([0, 1, 4], [2, 3, 4])
    assert align_observed("AGS", names, [False, True, True]) == [2, 3, 4]
    assert align_observed("AGAG", names, [False, True, True, True]) == [0, 1, 2, 3]
    assert align_observed("SA", names, [False, False]) == []


def test_cif_values_may_be_quoted_or_long(tmp_path):
    path = tmp_path / "a.cif"
    path.write_text(
        "data_x\n_a.b 'it''s # \"one\"'\n_a.c\n;two\nlines\n;\nloop_\n_t.x\n_t.y # comment\n1 'a b'\n2 \"O5'\"\n#\n"
    )
    tables = read_tables(path, ("a", "t"))
    assert tables["a"] == [{"b": "it''s # \"one\"", "c": "two\nlines"}]
    assert tables["t"] == [{"x": "1", "y": "a b"}, {"x": "2", "y": "O5'"}]


CIF = "data_x\nloop_\n_atom_site.Cartn_x\n_atom_site.Cartn_y\n"


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("a.pdb", "once upon a time\n", "a.pdb: has no ATOM lines, so it is no PDB file; give a .pdb or .cif file"),
        ("a.cif", "data_x\n_cell.a 1\n", "a.cif: has no atom_site table, so it is no structure"),
        ("a.cif", f"{CIF}1 2\n", "a.cif: its atom_site table has no Cartn_z; give a complete mmCIF file"),
        ("a.cif", f"{CIF}1 2 3\n", "a.cif, line 2: 3 values do not fill rows of 2; the file is incomplete"),
        ("a.cif", "data_x\n_a.b\n;text\n", "a text between semicolons does not end; the file is incomplete"),
        ("a.cif", "data_x\n_a.b\n", "a.cif, line 2: _a.b has no value; the file is incomplete"),
        ("a.pdb", f"{atom_line(1, 'O', 'HOH', 1, (0, 0, 0))}\n", "a.pdb: has no chain of amino acids with coordinates"),
        ("a.pdb", "ATOM      1  N   ALA A   1      here    0.000   0.000\n", "a.pdb, line 1: coordinates are numbers"),
        (
            "a.pdb",
            f"{atom_line(1, 'N', 'ALA', 1, (float('nan'), 0, 0))}\n",
            "a.pdb, line 1: a coordinate is not finite",
        ),
        ("a.txt", "", "a.txt: structures are read from .pdb, .ent, .cif, .mmcif files, plain or compressed"),
    ],
)
def test_what_is_no_structure_is_refused(tmp_path, name, text, sentence):
    (tmp_path / name).write_text(text)
    with pytest.raises(UserError) as error:
        read_chains(tmp_path / name)
    assert sentence in str(error.value) and "\n" not in str(error.value)


def test_a_chain_that_is_not_there(odd):
    with pytest.raises(UserError, match=r"odd.pdb: has no protein chain 'Z'; it has A"):
        read_chain(odd, "Z")


def test_coordinates_that_do_not_fit_the_columns_are_refused():
    chain = generate_chain(0, settings=SETTINGS).structure
    chain.atoms[0, N] = 1e6
    with pytest.raises(UserError, match="move the structure to the origin"):
        format_pdb(chain)
