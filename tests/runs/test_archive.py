"""Runs as one zip: what is written is unpacked, and nothing else is."""

import hashlib
import json
import stat
import subprocess
import sys
from pathlib import Path
from zipfile import ZIP_BZIP2, ZIP_DEFLATED, ZipFile, ZipInfo

import pytest
import torch

from headwise.errors import UserError
from headwise.runs import Run
from headwise.runs.archive import MANIFEST, archive_run, copy_run, remove_run, unpack
from headwise.runs.checkpoint import Checkpoint, load_weights, save
from headwise.runs.data_record import FileRecord, read_record, write_record
from headwise.runs.manifest import render_manifest

FILE = FileRecord("data/pairs.tsv", 3, 5, "0" * 64)


@pytest.fixture
def run(tmp_path) -> Run:
    run = Run.create(tmp_path / "runs" / "words", {"seed": 1})
    save(run, Checkpoint({"step": 3}, {"w": torch.ones(2)}))
    run.metrics.append({"step": 3, "loss": 2.0})
    write_record(run, tmp_path, [FILE])
    with run.lock():
        pass
    return run


def list_files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_an_archive_is_unpacked_to_the_same_files_without_folders_of_the_machine(run, tmp_path):
    (run.path / "notes.txt").write_text("mine")
    (tmp_path / "pairs.tsv").write_text("a\tb")
    left_out = archive_run(run, tmp_path / "words.zip", {"data/pairs.tsv": tmp_path / "pairs.tsv"})
    again = unpack(tmp_path / "words.zip", tmp_path / "elsewhere")
    before, after = list_files(run.path), list_files(again.path)
    assert left_out == ["notes.txt"]
    assert before.keys() - after.keys() == {"lock", "notes.txt"}
    assert after.keys() - before.keys() == {"data/data/pairs.tsv", "manifest.json"}
    assert all(content == before[name] for name, content in after.items() if name in before and name != "data.json")
    assert (read_record(again).folder, read_record(again).files) == ("", (FILE,))
    assert torch.equal(load_weights(again)["w"], torch.ones(2))


def test_a_copy_is_a_run_of_its_own(run, tmp_path):
    (run.path / "link").symlink_to(tmp_path)
    copy = copy_run(run, tmp_path / "deep" / "er" / "copy")
    files, record = list_files(copy.path), read_record(copy)
    assert files.keys() == list_files(run.path).keys() - {"lock"} and not (copy.path / "link").exists()
    assert (copy.path / record.from_run).resolve() == Path(record.folder) == tmp_path
    with pytest.raises(UserError, match="exists already"):
        copy_run(run, copy.path)


def test_a_run_is_removed_only_when_that_is_confirmed(run):
    with pytest.raises(UserError, match="add --yes to delete them for good"):
        remove_run(run, confirmed=False)
    assert run.path.exists()
    remove_run(run, confirmed=True)
    assert list(run.path.parent.iterdir()) == []


def test_what_is_no_run_is_not_removed(tmp_path):
    (tmp_path / "config.toml").write_text("")  # such as a web site's
    (tmp_path / "info.json").write_text("{}")
    with pytest.raises(UserError, match="not a run folder"):
        remove_run(Run.open(tmp_path), confirmed=True)


def test_a_link_to_a_run_is_not_removed(run, tmp_path):
    (tmp_path / "link").symlink_to(run.path)
    with pytest.raises(UserError, match="not a run folder"):
        remove_run(Run.open(tmp_path / "link"), confirmed=True)


@pytest.mark.parametrize("act", ["copy_run(run, run.path.parent / 'new')", "remove_run(run, True)"])
def test_a_run_that_is_being_trained_is_refused(run, act):
    names = "from headwise.runs import Run\nfrom headwise.runs.archive import copy_run, remove_run"
    code = f"{names}\nrun = Run.open({str(run.path)!r})\n{act}"
    with run.lock():
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "is being trained" in done.stderr and list_files(run.path) and len(list(run.path.parent.iterdir())) == 1


def describe(content: bytes) -> dict[str, object]:
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def write_zip(path: Path, files: dict[str, bytes], manifest: str | None = None, **attributes) -> Path:
    """A zip of a run with these files, besides a config.toml; `attributes` are set on the entry of the first."""
    contents = {**files, "evil/config.toml": b"seed = 1\n"}
    described = {name.removeprefix("evil/"): describe(content) for name, content in contents.items()}
    with ZipFile(path, "w", ZIP_DEFLATED) as archive:
        for number, (name, content) in enumerate(contents.items()):
            info = ZipInfo(name)
            info.compress_type = ZIP_DEFLATED
            for key, value in attributes.items() if number == 0 else ():
                setattr(info, key, value)
            archive.writestr(info, content)
        archive.writestr(f"evil/{MANIFEST}", render_manifest(described) if manifest is None else manifest)
    return path


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("/etc/evil", "not a file of one run"),
        ("evil//etc/passwd", "may leave the folder"),
        ("../evil", "not a file of one run"),
        ("evil/../../victim", "may leave the folder"),
        ("evil/data/../../../victim", "may leave the folder"),
        ("evil/data/..\\victim", "may leave the folder"),
        ("evil/data/C:victim", "may leave the folder"),
        ("evil/data/a\nb", "may leave the folder"),
        ("evil/parts.py", "is no file of a run"),
        ("evil/checkpoints/step-1/model.pkl", "is no file of a run"),
        ("evil/checkpoints/step-x/model.safetensors", "is no file of a run"),
        ("evil/lock", "is no file of a run"),
        ("evil/.tmp-best", "is no file of a run"),
        ("other/best", "not a file of one run"),
        ("..", "not a file of one run"),
    ],
)
def test_names_that_training_does_not_write_are_refused(tmp_path, name, sentence):
    bad = write_zip(tmp_path / "bad.zip", {"evil/best": b"step-1", name: b"x"})
    with pytest.raises(UserError, match=sentence):
        unpack(bad, tmp_path / "deep" / "runs")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [bad]


@pytest.mark.parametrize("name", ["../best", ".hidden/best", "a\\b/best"])
def test_the_name_of_the_run_cannot_leave_the_folder(tmp_path, name):
    with ZipFile(tmp_path / "bad.zip", "w") as archive:
        archive.writestr(name, "step-1")
    with pytest.raises(UserError, match="is not an archive of a run"):
        unpack(tmp_path / "bad.zip", tmp_path / "runs")


@pytest.mark.parametrize(
    "attributes",
    [
        {"external_attr": (stat.S_IFLNK | 0o777) << 16},
        {"external_attr": (stat.S_IFIFO | 0o644) << 16},
        {"external_attr": (stat.S_IFDIR | 0o755) << 16},
        {"compress_type": ZIP_BZIP2},
    ],
    ids=["link", "fifo", "folder", "bzip2"],
)
def test_only_plain_files_are_unpacked(tmp_path, attributes):
    bad = write_zip(tmp_path / "bad.zip", {"evil/best": b"/etc/passwd"}, **attributes)
    with pytest.raises(UserError, match="is a link, encrypted or no plain file"):
        unpack(bad, tmp_path / "runs")


def test_a_zip_bomb_is_refused_before_it_is_unpacked(tmp_path):
    bad = write_zip(tmp_path / "bad.zip", {"evil/data/zeros": bytes(200 * 2**20)})
    assert bad.stat().st_size < 2**20
    with pytest.raises(UserError, match="unpacks to more than 100 times its size"):
        unpack(bad, tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_name_that_occurs_twice_is_refused(tmp_path):
    bad = write_zip(tmp_path / "bad.zip", {})
    with ZipFile(bad, "a") as archive:
        archive.writestr("evil/config.toml", "seed = 2\n")
    with pytest.raises(UserError, match="occurs twice"):
        unpack(bad, tmp_path / "runs")


CONFIG = {"config.toml": describe(b"seed = 1\n")}


@pytest.mark.parametrize(
    ("manifest", "sentence"),
    [
        ("{}", "differs from what was written"),
        (json.dumps({"files": ["config.toml"], "sha256": ""}), "differs from what was written"),
        ("[" * 50_000, "differs from what was written"),
        (render_manifest({}), "its files are not those of its archive.json"),
        (render_manifest({**CONFIG, "best": describe(b"")}), "its files are not those of its archive.json"),
        (render_manifest({"config.toml": describe(b"seed = 2\n")}), "config.toml differs from archive.json"),
    ],
)
def test_files_must_match_the_manifest(tmp_path, manifest, sentence):
    bad = write_zip(tmp_path / "bad.zip", {}, manifest)
    with pytest.raises(UserError, match=sentence):
        unpack(bad, tmp_path / "runs")
    assert not list((tmp_path / "runs").rglob("*"))


def test_damaged_files_are_refused(run, tmp_path):
    archive_run(run, tmp_path / "good.zip")
    content = (tmp_path / "good.zip").read_bytes()
    (tmp_path / "cut.zip").write_bytes(content[: len(content) // 2])
    flipped = bytearray(content)
    flipped[content.index(b"\0\0\x80\x3f")] ^= 1  # a bit of the weights
    (tmp_path / "flipped.zip").write_bytes(flipped)
    (tmp_path / "text.zip").write_text("no zip")
    for name in ("cut", "flipped", "text", "missing"):
        with pytest.raises(UserError, match=f"{name}.zip: "):
            unpack(tmp_path / f"{name}.zip", tmp_path / "new")
    assert not list((tmp_path / "new").rglob("*"))
    with pytest.raises(UserError, match="exists already"):
        unpack(tmp_path / "good.zip", tmp_path / "runs")


def test_an_archive_is_never_overwritten(run, tmp_path):
    archive_run(run, tmp_path / "words.zip")
    with pytest.raises(UserError, match="exists already"):
        archive_run(run, tmp_path / "words.zip")
    with pytest.raises(UserError, match=r"ends in \.zip"):
        archive_run(run, tmp_path / "words.tar")


def test_the_current_folder_is_removed_by_its_name(run, monkeypatch, tmp_path):
    monkeypatch.chdir(run.path)
    remove_run(Run.open("."), confirmed=True)
    monkeypatch.chdir(tmp_path)
    assert not run.path.exists()


def test_names_that_no_machine_unpacks_are_not_archived(run, tmp_path):
    (tmp_path / "odd").write_text("a")
    with pytest.raises(UserError, match="rename the file"):
        archive_run(run, tmp_path / "words.zip", {"a:b": tmp_path / "odd"})
    assert not (tmp_path / "words.zip").exists()
