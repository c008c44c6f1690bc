"""An n-gram run as an ARPA file, and the file as a run that gives the same probabilities."""

import pytest

import headwise
from headwise.cli.main import main
from headwise.experiment.config import parse_experiment


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("arpa")
    (folder / "lines.txt").write_text("the cat sat on the mat\nthe dog sat on the log\na cat and a dog\n" * 5)
    experiment = parse_experiment(
        {
            "name": "words",
            "task": "language-model",
            "data": {"train": str(folder / "lines.txt"), "valid": str(folder / "lines.txt"), "format": "lines"},
            "tokeniser": "words",
            "model": "ngram-trigram",
            "train": {"epochs": 1},
        }
    )
    headwise.train_experiment(experiment, folder)
    return folder


def test_there_and_back(folder, capsys):
    main(["export", str(folder / "words"), str(folder / "words.arpa"), "--to", "arpa"])
    main(["import", str(folder / "words.arpa"), str(folder / "back")])
    ours, theirs = headwise.load(folder / "words"), headwise.load(folder / "back")
    pairs = [("", "the cat sat on the log"), ("", "a bird sat")]
    one, other = (loaded.evaluate(pairs).scores[0].value for loaded in (ours, theirs))
    assert one == pytest.approx(other, rel=1e-5)
    assert [c.word for c in theirs.complete("the c")] == [c.word for c in ours.complete("the c")] == ["cat"]


def test_only_n_grams_have_such_a_file(folder, tmp_path, capsys):
    experiment = {
        "name": "net",
        "task": "language-model",
        "data": {"train": str(folder / "lines.txt"), "valid": str(folder / "lines.txt"), "format": "lines"},
        "tokeniser": "words",
        "model": "lstm-tiny",
        "train": {"steps": 1},
    }
    run, _ = headwise.train_experiment(parse_experiment(experiment), tmp_path)
    with pytest.raises(SystemExit) as stopped:
        main(["export", str(run.path), str(tmp_path / "x.arpa"), "--to", "arpa"])
    assert stopped.value.code == 2
    assert "only n-gram models" in capsys.readouterr().err
