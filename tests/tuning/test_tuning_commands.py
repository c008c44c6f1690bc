"""Fine-tuning from the command line: mistakes, and `headwise merge`."""

import pytest
import tomli_w
from safetensors.torch import load_file

import headwise
from headwise.cli.main import main
from headwise.runs import Run


@pytest.fixture
def command(capsys, monkeypatch, tmp_path):
    """Run a command in this process: its status, its lines on stdout and on stderr."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        capsys.readouterr()
        status = 0
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as leave:
            status = int(leave.code or 0)
        said = capsys.readouterr()
        return status, said.out.splitlines(), said.err.splitlines()

    return run


MISTAKES = [
    ({"init_from": "nowhere"}, "init_from: nowhere: there is no such folder"),
    ({"init_from": "RUNS/gpt@step-7"}, "has no checkpoint 'step-7'"),
    ({"tokeniser": {"kind": "words", "size": 9}}, "was trained with size = 32000, the experiment has size = 9;"),
    ({"tokeniser": {"kind": "bytes"}}, "the experiment has kind = bytes; leave out [tokeniser]"),
    ({"model": {"kind": "gpt2-tiny", "width": 64}}, "fits this model; leave out or correct [model]"),
    ({"model": {"embeddings": "vectors.txt"}}, "model.embeddings: init_from brings vectors of its own"),
    ({"tuning": {"freeze": ["encoder.embd"]}}, "tuning.freeze: nothing in the model is called 'encoder.embd'; "),
    ({"tuning": {"freez": []}}, "tuning.freez: unknown key; did you mean freeze"),
    ({"tuning": {"lora": {"rank": 4, "targets": ["*.seee"]}}}, "tuning.lora.targets: nothing in the model is called"),
    ({"init_from": "", "tuning": {"lora": {"rank": 4}}}, "tuning.lora: it adapts a model that exists"),
    ({"task": "tag"}, "task: the model 'gpt2' cannot tag"),
]


@pytest.mark.parametrize(("changes", "sentence"), MISTAKES)
def test_a_mistake_is_one_sentence_and_writes_nothing(command, tables, place, tmp_path, changes, sentence):
    settings = {**tables("classify"), **changes}
    settings["init_from"] = settings["init_from"].replace("RUNS", str(place / "runs"))
    (tmp_path / "tuned.toml").write_text(tomli_w.dumps(settings))
    status, out, err = command("train", "tuned.toml")
    assert status == 2 and out == [] and len(err) == 1 and sentence in err[0]
    assert not (tmp_path / "runs").exists()


def test_merge_makes_an_ordinary_run(command, learn):
    run, _ = learn("classify", tuning={"lora": {"rank": 2}})
    status, out, _ = command("merge", run.path, "merged")
    assert status == 0 and out == ["merged"]
    merged = Run.open("merged")
    assert merged.config["tuning"]["lora"]["rank"] == 0
    assert (
        load_file(merged.checkpoint_path(0) / "model.safetensors").keys()
        < load_file(run.checkpoint_path(10) / "model.safetensors").keys()
    )
    texts = ["a good", "b not good"]
    for one, other in zip(*(headwise.load(path).classify(texts) for path in (run.path, "merged")), strict=True):
        assert one == pytest.approx(other, abs=1e-5)
    for arguments, sentence in (
        ((run.path, "merged"), "merged exists already"),
        (("merged", "again"), "merged has no LoRA matrices"),
        (("nowhere", "again"), "nowhere is not a run"),
    ):
        status, _, err = command("merge", *arguments)
        assert status == 2 and len(err) == 1 and sentence in err[0]
    assert headwise.resume("merged")[1].step == 10
