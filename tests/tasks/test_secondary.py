"""Secondary structure as tags of residues: Q8 and Q3, FASTA files and a picture by the command line."""

import json

import pytest

from headwise.cli.main import main
from headwise.data.config import TextDataConfig
from headwise.data.corpora import load_corpus
from headwise.errors import UserError
from headwise.experiment.config import parse_experiment
from headwise.experiment.load import load
from headwise.experiment.run import train_experiment
from headwise.inspect.secondary import Track, draw_secondary

ROWS = [("AAKLLAAK", "HHHHHHGG"), ("VVTVVT", "EEEEBE"), ("GPGSGP", "LTSLLL"), ("AALKGPVTVV", "HHHHLTEEEB")]


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "secondary.tsv"
    rows = [f"d{number}\ta.1\t{sequence}\t{states}" for number, (sequence, states) in enumerate(ROWS * 6)]
    path.write_text("\n".join(["domain\tscop\tsequence\tdssp", *rows]) + "\n")
    return path


def train(table, tmp_path, **task):
    tables = {
        "name": "secondary",
        "task": {"kind": "tag", **task},
        "data": {
            "train": str(table),
            "valid": str(table),
            "test": str(table),
            "format": "residues",
            "cache": str(tmp_path),
        },
        "model": {"kind": "lstm-tiny", "bidirectional": True},
        "train": {"steps": 60, "batch_size": 8, "schedule": {"kind": "cosine", "lr": 0.03, "warmup": 3}},
    }
    return train_experiment(parse_experiment(tables), tmp_path / "runs")[0].path


def test_residues_are_words_and_states_their_tags(table):
    corpus = load_corpus(TextDataConfig(train=str(table), valid=str(table), format="residues", one_to_one=True))
    assert corpus.valid[1] == ("V V T V V T", "E E E E B E")


def test_rows_that_differ_in_length_are_refused(table):
    table.write_text("sequence\tdssp\nAAK\tHH\n")
    with pytest.raises(UserError, match=r"secondary.tsv, line 2: 3 residues but 2 states; give each residue one state"):
        load_corpus(TextDataConfig(train=str(table), valid=str(table), format="residues"))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("secondary")
    path = folder / "secondary.tsv"
    rows = [f"{sequence}\t{states}" for sequence, states in ROWS * 6]
    path.write_text("\n".join(["sequence\tdssp", *rows]) + "\n")
    return train(path, folder, scheme="dssp")


def test_it_is_scored_by_eight_states_and_by_three(run):
    trained = load(run)
    scores = trained.evaluate([("A A K", "H G T"), ("V V", "E E")]).scores
    assert [score.name for score in scores] == ["Q8", "Q3"]
    assert scores[1].value >= scores[0].value
    eight = "".join(trained.predict_states(["AAKVV"]))
    right = sum(a == b for a, b in zip(eight, "HGTEE", strict=True))
    assert len(eight) == 5 and scores[0].value >= 20 * right - 40


def test_tag_reads_fasta_and_draws(run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "two.fasta").write_text(">first\nAAKLLAAK\n>second\nGPGX\n")
    main(["tag", str(run), "two.fasta", "VVTVVT", "--json", "--out", "states.svg"])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["name"] for row in rows] == ["first", "second", "sequence"]
    assert all(len(row["sequence"]) == len(row["q8"]) == len(row["q3"]) for row in rows)
    assert "Secondary structure of first" in (tmp_path / "states.svg").read_text()
    main(["tag", str(run), "two.fasta"])
    assert capsys.readouterr().out.splitlines()[:2] == [">first", "AAKLLAAK"]


@pytest.mark.parametrize(
    ("text", "options", "sentence"),
    [
        (">a\nMK1\n", (), "a.fasta, line 1: '1' is no amino acid"),
        ("", (), "a.fasta: has no sequences"),
        (">a\nMK\n", ("--out", "a.gif"), "a.gif: the file ends in '.gif'"),
    ],
)
def test_bad_input_is_one_sentence(run, tmp_path, monkeypatch, capsys, text, options, sentence):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.fasta").write_text(text)
    with pytest.raises(SystemExit) as leave:
        main(["tag", str(run), "a.fasta", *options])
    error = capsys.readouterr().err
    assert leave.value.code == 2 and sentence in error and "Traceback" not in error
    assert not (tmp_path / "a.gif").exists()


def test_the_picture_has_a_cartoon_of_each_element():
    drawing = draw_secondary("toy", "A" * 60, [Track("predicted", "L" * 5 + "H" * 10 + "E" * 5 + "L" * 40)])
    svg = drawing.to_svg()
    assert svg.count("<polygon") == 1 and svg.count('rx="5"') == 1 and svg.count(">A<") == 60
