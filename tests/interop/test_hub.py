"""Import of repositories of the Hugging Face Hub, from a server on loopback."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import huggingface_hub
import pytest
import torch
from hub_server import Repository, serve_hub

import headwise
from headwise.cli.main import main
from headwise.errors import UserError
from headwise.experiment.config import parse_experiment
from headwise.inference.trained_model import TrainedModel
from headwise.interop.hf.hub import FILES, find_folder, is_repository
from headwise.runs import Run
from headwise.text.tokenisers import Tokenisers
from headwise.text.vocabulary import Characters

TABLES = {
    "task": "language-model",
    "model": {"kind": "gpt-tiny", "dropout": 0.0},
    "data": {"train": "none"},
    "train": {"steps": 1},
}


@pytest.fixture(scope="module")
def exported(tmp_path_factory) -> dict[str, bytes]:
    """The files of an exported language model of random weights."""
    torch.manual_seed(0)
    experiment, tokenisers = parse_experiment(TABLES), Tokenisers(Characters("abc"), Characters("abc"))
    model = experiment.create_task(tokenisers).build(experiment.model)
    folder = tmp_path_factory.mktemp("hf") / "folder"
    assert headwise.to_hf(TrainedModel(model, tokenisers, experiment), folder) == ""
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.fixture
def hub(tmp_path, monkeypatch, exported):
    """A server with the repository org/tiny; the client has its address and an empty cache, as from the environment."""
    with serve_hub() as hub:
        hub.repositories["org/tiny"] = Repository({**exported, "pytorch_model.bin": b"pickle", "README.md": b"# tiny"})
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", hub.url)
        template = f"{hub.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr(huggingface_hub.constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
        monkeypatch.delenv("HF_TOKEN", raising=False)
        monkeypatch.chdir(tmp_path)
        yield hub
        huggingface_hub.close_session()


def local_copy(path: Path, exported: dict[str, bytes]) -> Path:
    path.mkdir(parents=True)
    for name, content in exported.items():
        (path / name).write_bytes(content)
    return path


def same_weights(one: TrainedModel, other: TrainedModel) -> bool:
    first, second = one.model.state_dict(), other.model.state_dict()
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def test_a_repository_becomes_a_run_that_keeps_the_commit(hub, exported, tmp_path, capsys):
    main(["import", "org/tiny"])
    assert capsys.readouterr().out == "runs/tiny\n"
    run = Run.open("runs/tiny")
    commit = hub.repositories["org/tiny"].commit
    assert run.info["origin"] == {"repository": "org/tiny", "revision": "main", "commit": commit}
    assert run.config["name"] == "tiny"
    assert same_weights(headwise.load("runs/tiny"), headwise.from_hf(local_copy(tmp_path / "copy", exported)))


def test_only_what_the_importer_reads_is_downloaded_and_only_once(hub, exported):
    headwise.from_hf("org/tiny")
    assert set(hub.downloads()) == {name for name in exported if name in (*FILES, "model.safetensors")}
    assert not any("bin" in path or "README" in path for _, path in hub.requests)
    hub.requests.clear()
    headwise.from_hf("org/tiny")
    assert hub.downloads() == [] and {path for _, path in hub.requests} == {"/api/models/org/tiny/revision/main"}


def test_shards_are_those_of_the_index(hub, exported):
    from safetensors.torch import load, save

    tensors = load(exported["model.safetensors"])
    names = sorted(tensors)
    halves = {"model-1-of-2.safetensors": names[::2], "model-2-of-2.safetensors": names[1::2]}
    files = {file: save({name: tensors[name] for name in half}) for file, half in halves.items()}
    index = {"weight_map": {name: file for file, half in halves.items() for name in half}}
    files |= {"model.safetensors.index.json": json.dumps(index).encode(), "extra.safetensors": b"other"}
    others = {name: content for name, content in exported.items() if name != "model.safetensors"}
    hub.repositories["org/sharded"] = Repository({**others, **files})
    hub.repositories["org/both"] = Repository({**exported, **files})
    assert same_weights(headwise.from_hf("org/sharded"), headwise.from_hf("org/tiny"))
    assert not {"extra.safetensors"} & set(hub.downloads()) and hub.downloads().count("model.safetensors") == 1
    hub.requests.clear()
    assert same_weights(headwise.from_hf("org/both"), headwise.from_hf("org/tiny"))
    assert "model.safetensors" in hub.downloads() and not {*halves} & set(hub.downloads())


def test_fine_tuning_starts_from_a_repository(hub, tmp_path):
    (tmp_path / "text.txt").write_text("abc cab\n" * 30)
    data = {"train": "text.txt", "format": "text", "cache": str(tmp_path / "data")}
    commit = hub.repositories["org/tiny"].commit
    task = {"kind": "language-model", "context": 16}
    tables = {"task": task, "data": data, "train": {"steps": 1}, "init_from": f"org/tiny@{commit}"}
    run, _ = headwise.train_experiment(parse_experiment(tables), tmp_path / "runs")
    assert run.info["init_from"] == {"repository": "org/tiny", "revision": commit, "commit": commit}
    assert headwise.load(run.path, which="step-0").task.kind == "language-model"


def test_fit_starts_from_a_repository_and_then_from_the_cache(hub, tmp_path, monkeypatch, capsys):
    (tmp_path / "text.txt").write_text("abc cab\n" * 30)
    main(["fit", "text.txt", "--from", "org/tiny", "--minutes", "0.005"])
    assert capsys.readouterr().out == "runs/text\n"
    commit = hub.repositories["org/tiny"].commit
    assert Run.open("runs/text").info["init_from"] == {"repository": "org/tiny", "revision": "main", "commit": commit}
    assert same_weights(headwise.load("runs/text", which="step-0"), headwise.from_hf("org/tiny"))
    hub.requests.clear()
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    main(["fit", "text.txt", "--from", "org/tiny", "--dry-run"])
    assert 'init_from = "org/tiny"' in capsys.readouterr().out
    with pytest.raises(SystemExit) as leave:
        main(["fit", "text.txt", "--from", "org/other"])
    assert leave.value.code == 2
    assert "headwise: --from: org/other: HF_HUB_OFFLINE is set and the cache" in capsys.readouterr().err
    assert hub.requests == [] and [run.name for run in Path("runs").iterdir()] == ["text"]


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("no/where", "--from: no/where: there is no such folder, and {url} has no such repository, or it is private;"),
        ("runs/typo", "--from: runs/typo: there is no such folder; name a run, a Hugging Face folder, or a repository"),
        ("empty", "--from: empty: is neither a run nor a Hugging Face folder; name a run,"),
    ],
)
def test_fit_refuses_what_it_cannot_start_from(hub, capsys, source, sentence):
    Path("text.txt").write_text("abc cab\n" * 30)
    Path("empty").mkdir()
    with pytest.raises(SystemExit) as leave:
        main(["fit", "text.txt", "--from", source])
    assert leave.value.code == 2
    assert sentence.format(url=hub.url) in capsys.readouterr().err
    assert not Path("runs").exists()


def test_the_environment_reaches_the_client_and_offline_mode_uses_the_cache(hub, tmp_path):
    def run(*arguments, **variables):
        environment = {**os.environ, "HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "home"), **variables}
        command = [sys.executable, "-m", "headwise", "import", *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    hub.repositories["org/tiny"].token = "secret"
    first = run("org/tiny", "runs/first", HF_TOKEN="secret")
    assert first.returncode == 0, first.stderr
    assert first.stderr.startswith(f"headwise: org/tiny: looked up at {hub.url}\n")
    hub.requests.clear()
    second = run("org/tiny", "runs/second", HF_HUB_OFFLINE="1")
    assert second.returncode == 0, second.stderr
    third = run("org/other", "runs/third", HF_HUB_OFFLINE="1")
    assert third.returncode == 2 and not Path("runs/third").exists()
    cache = tmp_path / "home" / "hub"
    sentence = f"org/other: HF_HUB_OFFLINE is set and the cache {cache} does not have it at 'main'; unset it, or name a"
    assert third.stderr == f"headwise: {sentence} folder\n"
    assert hub.requests == []
    assert Run.open("runs/second").info["origin"] == Run.open("runs/first").info["origin"]


def test_a_local_folder_goes_before_a_repository(hub, exported):
    local_copy(Path("org/tiny"), exported)
    assert find_folder("org/tiny").origin == {} and headwise.from_hf("org/tiny").origin == {}
    assert not is_repository("org/misspelt")  # there is a folder org, so it is meant as a path
    assert not is_repository("runs/misspelt") and is_repository("runs/misspelt", "main")
    assert hub.requests == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["no/where"],
            "no/where: there is no such folder, and {url} has no such repository, or it is private;",
        ),
        (["org/gated"], "org/gated: is a gated repository; accept its terms at {url}/org/gated and set HF_TOKEN to"),
        (["org/tiny", "--revision", "v9"], "org/tiny: has no revision 'v9'; name a branch, a tag or a commit of it"),
        (["org/pickles"], "org/pickles: has its weights only as pickles (pytorch_model.bin), which could run code and"),
        (["org/data"], "org/data: has no model.safetensors; name the repository of a model"),
        (
            ["copy", "--revision", "v9"],
            "copy: is no repository such as org/name, so it has no revision v9;",
        ),
    ],
)
def test_each_mistake_is_one_sentence(hub, exported, capsys, arguments, sentence):
    local_copy(Path("copy"), exported)
    small = {name: content for name, content in exported.items() if name != "model.safetensors"}
    hub.repositories["org/gated"] = Repository(exported, token="secret")
    hub.repositories["org/pickles"] = Repository({**small, "pytorch_model.bin": b"pickle"})
    hub.repositories["org/data"] = Repository({"rows.csv": b"a,b"})
    with pytest.raises(SystemExit) as leave:
        main(["import", arguments[0], "runs/new", *arguments[1:]])
    assert leave.value.code == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("headwise: ")]
    assert line.startswith("headwise: " + sentence.format(url=hub.url))
    assert not Path("runs").exists() and hub.downloads().count("pytorch_model.bin") == 0


def test_without_network_the_sentence_says_so(hub, monkeypatch):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{closed.getsockname()[1]}"
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", address)
    with pytest.raises(UserError, match=rf"org/tiny: {address} cannot be reached and the cache .* check the network"):
        headwise.from_hf("org/tiny")


@pytest.mark.parametrize("file", ["model.safetensors", "config.json"])
def test_a_file_with_another_hash_is_refused(hub, file):
    repository = hub.repositories["org/tiny"]
    content = repository.files[file]
    repository.claimed[file] = content
    repository.files = {**repository.files, file: content[:-2] + bytes([content[-2] ^ 1]) + content[-1:]}
    with pytest.raises(UserError, match=rf"org/tiny: {file} was damaged in the download or in the cache") as refusal:
        headwise.from_hf("org/tiny")
    Path(str(refusal.value).partition("delete ")[2].removesuffix(" and import it again")).unlink()
    repository.files = {**repository.files, file: content}
    headwise.from_hf("org/tiny")


def test_a_file_with_another_size_is_refused(hub):
    repository = hub.repositories["org/tiny"]
    repository.claimed["model.safetensors"] = repository.files["model.safetensors"] + b"more"
    with pytest.raises(UserError, match=r"org/tiny: cannot be downloaded from .*; import it again"):
        headwise.from_hf("org/tiny")


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        (404, "{url} answers with status 404; import it again later, or name a folder with a copy"),
        (403, "{url} refuses access (status 403); set HF_TOKEN to a token that may read it"),
        (500, "{url} answers with status 500; import it again later, or name a folder with a copy; the cache"),
        (b"<html>login</html>", "{url} does not answer as the Hugging Face Hub does (JSONDecodeError); check"),
        (b"[1]", "{url} does not answer as the Hugging Face Hub does ("),
        (None, "{url} cannot be reached and the cache"),  # it says nothing for longer than we wait
    ],
)
def test_a_server_with_a_fault_is_one_sentence(hub, capsys, monkeypatch, fault, sentence):
    if fault is None:  # the others answer, however busy the machine
        monkeypatch.setattr("headwise.interop.hf.hub.MAX_SILENCE", 0.2)
    hub.fault = fault
    with pytest.raises(SystemExit) as leave:
        main(["import", "org/tiny"])
    assert leave.value.code == 2
    refused = capsys.readouterr().err.splitlines()[-1]
    assert refused.startswith("headwise: org/tiny: " + sentence.format(url=hub.url))
    assert not Path("runs").exists()


def test_a_commit_that_is_none_makes_no_paths(hub, tmp_path):
    hub.repositories["org/tiny"].commit = "../../../../../evil"
    with pytest.raises(UserError, match="answers with no commit for 'main'"):
        headwise.from_hf("org/tiny")
    assert not list(tmp_path.parent.rglob("evil*"))


def test_importing_the_package_does_not_import_the_client():
    code = "import sys, headwise, headwise.interop.hf.hub; sys.exit('huggingface_hub' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
