"""FASTA, A3M and Stockholm files, beside biotite, and what they refuse."""

import biotite.sequence.io.fasta as biotite_fasta
import pytest

from headwise.errors import UserError
from headwise.proteins.alignments import Alignment
from headwise.proteins.readers.alignments import read_alignment
from headwise.proteins.readers.fasta import read_fasta

STOCKHOLM = """# STOCKHOLM 1.0
#=GF ID toy
query/1-4  MK-
other      MRa
third      -..
#=GC RF    xx.

query/1-4  VL
other      .L
third      VI
//
"""


def test_fasta_is_read_as_biotite_reads_it(tmp_path):
    path = tmp_path / "a.fasta"
    path.write_text(">one first protein\nMKTAYI\nAKQR\n\n>two\nGGSW*\n")
    ours = {each.name: each.sequence for each in read_fasta(path)}
    theirs = {name.split()[0]: text.removesuffix("*") for name, text in biotite_fasta.FastaFile.read(path).items()}
    assert ours == theirs == {"one": "MKTAYIAKQR", "two": "GGSW"}


def test_other_letters_of_iupac_and_small_letters(tmp_path):
    (tmp_path / "a.fa").write_text(">a\nmbzUJOx\n")
    assert read_fasta(tmp_path / "a.fa")[0].sequence == "MDECXXX"


def test_a3m_counts_insertions(tmp_path):
    (tmp_path / "a.a3m").write_text(">query\nMKVL\n>hit\nM-abVL\n>far\nccMKV-\n")
    alignment = read_alignment(tmp_path / "a.a3m")
    assert [alignment.get_row(row) for row in range(3)] == ["MKVL", "M-VL", "MKV-"]
    assert alignment.deletions.tolist() == [[0] * 4, [0, 0, 2, 0], [2, 0, 0, 0]]
    assert alignment.names == ("query", "hit", "far")
    assert alignment.compute_profile().sum(-1).tolist() == pytest.approx([1] * 4)


def test_stockholm_keeps_the_columns_of_the_query(tmp_path):
    (tmp_path / "a.sto").write_text(STOCKHOLM)
    alignment = read_alignment(tmp_path / "a.sto")
    assert [alignment.get_row(row) for row in range(3)] == ["MKVL", "MR-L", "--VI"]
    assert alignment.deletions.tolist() == [[0] * 4, [0, 0, 1, 0], [0] * 4]


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("a.a3m", ">q\nMKV\n>hit\nMK\n", "a.a3m: row 2 (hit) has 2 columns and the query 3; align the rows"),
        ("a.a3m", ">q\nMKV\n>hit\nM1V\n", "a.a3m: row 2 (hit) has '1', which is no amino acid; write X"),
        ("a.a3m", ">q\n>hit\nM\n", "a.a3m: the alignment is empty"),
        ("a.a3m", "MKV\n", "a.a3m, line 1: a FASTA file begins with > and a name"),
        ("a.sto", "MKV\n", "a.sto: a Stockholm file begins with '# STOCKHOLM 1.0'"),
        ("a.sto", "# STOCKHOLM 1.0\nq MKV\nhit MK\n//\n", "a.sto: row 2 (hit) has 2 columns and the query 3"),
        ("a.sto", "# STOCKHOLM 1.0\n//\n", "a.sto: the alignment is empty"),
        ("a.txt", "", "a.txt: alignments are read from .a3m"),
    ],
)
def test_bad_alignments_are_refused(tmp_path, name, text, sentence):
    (tmp_path / name).write_text(text)
    with pytest.raises(UserError) as error:
        read_alignment(tmp_path / name)
    assert sentence in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (">a\nMK?V\n", "a.fasta, line 1: '?' is no amino acid; write X where a residue is not known"),
        (">a\nMK-V\n", "'-' is no amino acid"),
        (">a\n>b\nM\n", "a.fasta, line 1: has no sequence; write its letters after the name"),
        ("", "a.fasta: has no sequences; a FASTA file has lines of > and a name"),
    ],
)
def test_bad_sequences_are_refused(tmp_path, text, sentence):
    (tmp_path / "a.fasta").write_text(text)
    with pytest.raises(UserError) as error:
        read_fasta(tmp_path / "a.fasta")
    assert sentence in str(error.value)


def test_rows_of_an_alignment_can_be_chosen():
    alignment = Alignment.from_rows(["MK", "M-", "RK"], [[0, 0]] * 3, ["a", "b", "c"])
    chosen = alignment.select(alignment.rows[:, 0].ne(1).nonzero().flatten())
    assert len(chosen) == 2 and chosen.names == ("a", "b")
