"""Where the data of a run are looked for, and how changed files are noticed."""

import os
from pathlib import Path

import pytest

from headwise.data.config import TextDataConfig
from headwise.data.corpora import load_corpus
from headwise.data.digests import load_digests, record_files
from headwise.data.locate import check_files, check_unchanged, find_changes, list_data_files, locate_data, make_portable
from headwise.errors import UserError
from headwise.runs.data_record import DataRecord

TEXT = "".join(f"{number}\t{number}\n" for number in range(100))


def write(path: Path, text: str = TEXT) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    """A project with data/pairs.tsv, in which training was started."""
    folder = write(tmp_path / "project" / "data" / "pairs.tsv").parents[1]
    (folder / "runs" / "a").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


def record_of(folder: Path, data: TextDataConfig, monkeypatch) -> DataRecord:
    monkeypatch.chdir(folder)
    files = record_files(load_corpus(data).files, folder / "cache")
    monkeypatch.chdir(folder.parent)
    return DataRecord(str(folder), "../..", tuple(files))


def locate(data: TextDataConfig, record: DataRecord, project: Path, folder: str = "") -> list[Path]:
    """The training files that are found for the run project/runs/a."""
    location = locate_data(data, project / "runs" / "a", record, folder)
    assert len(load_corpus(location.data).valid)
    return [(Path(location.data.root) / name).resolve() for name in location.data.train]


PAIRS = TextDataConfig(train="data/pairs.tsv")


def test_places_are_tried_in_order(project, monkeypatch):
    record = record_of(project, PAIRS, monkeypatch)
    here = Path.cwd()
    (project / "data" / "pairs.tsv").rename(here / "kept.tsv")
    places = [
        here / "data/pairs.tsv",  # the current folder
        project / "data/pairs.tsv",  # where it was
        project / "runs/data/pairs.tsv",  # the folder of runs
        project / "runs/a/pairs.tsv",  # the run, by name
        project / "runs/a/data/pairs.tsv",
    ]
    for place in places:
        write(place)
        assert locate(PAIRS, record, project) == [place]
    write(here / "mine/pairs.tsv")
    assert locate(PAIRS, record, project, "mine") == [here / "mine/pairs.tsv"]


def test_a_moved_project_is_found_again(project, monkeypatch):
    record = record_of(project, PAIRS, monkeypatch)
    moved = project.rename(project.with_name("moved"))
    assert locate(PAIRS, record, moved) == [moved / "data/pairs.tsv"]


def test_a_file_of_the_recorded_size_comes_before_others(project, monkeypatch):
    record = record_of(project, PAIRS, monkeypatch)
    write(project / "runs/pairs.tsv", TEXT + "more\tmore\n")
    assert locate(PAIRS, record, project) == [project / "data/pairs.tsv"]
    assert locate(PAIRS, record, project, str(project / "runs")) == [project / "runs/pairs.tsv"]  # as the user says


@pytest.mark.parametrize("train", ["{0}/data/pairs.tsv", "../project/data/pairs.tsv"])
def test_paths_out_of_the_folder_are_found_in_an_archive(project, monkeypatch, train):
    data = TextDataConfig(train=train.format(project))
    record = record_of(project, data, monkeypatch)
    for name, path in list_data_files(data, project / "runs/a", record).items():
        write(project / "runs/a/data" / name, path.read_text())
    (project / "data" / "pairs.tsv").unlink()
    archived = DataRecord(files=record.files)
    location = locate_data(data, project / "runs/a", archived)
    assert location.data.root == str(project / "runs/a/data")
    assert find_changes(location, archived, full=True) == []


def test_folders_patterns_and_roots_are_found(project, monkeypatch):
    write(project / "data/other.tsv", TEXT)
    for data in (
        TextDataConfig(train="data/*.tsv"),
        TextDataConfig(train="pairs.tsv", root="data"),
        TextDataConfig(train="data", columns=(1, 2)),
    ):
        record = record_of(project, data, monkeypatch)
        location = locate_data(data, project / "runs/a", record)
        check_unchanged(location, record)
        check_files(location, record, load_corpus(location.data).files)
        assert len(load_corpus(location.data).valid)


def test_an_added_shard_is_noticed(project, monkeypatch):
    data = TextDataConfig(train="data/*.tsv")
    record = record_of(project, data, monkeypatch)
    write(project / "data/later.tsv")
    location = locate_data(data, project / "runs/a", record)
    with pytest.raises(UserError, match=r"later\.tsv was added since this run was trained"):
        check_files(location, record, load_corpus(location.data).files)


def test_the_sentence_says_where_it_looked(project, monkeypatch):
    record = record_of(project, PAIRS, monkeypatch)
    (project / "data" / "pairs.tsv").unlink()
    with pytest.raises(UserError) as error:
        locate(PAIRS, record, project)
    message = str(error.value)
    assert "data/pairs.tsv" in message and "--data-root" in message
    assert all(str(folder) in message for folder in (project / "runs/a", project / "runs", project, Path.cwd()))


def test_names_stay_names(project):
    data = TextDataConfig(name="cmudict")
    assert locate_data(data, project, DataRecord()).data is data
    assert list_data_files(data, project, DataRecord()) == {}


def test_changed_files_are_noticed_by_size_time_and_digest(project, monkeypatch):
    record = record_of(project, PAIRS, monkeypatch)
    location, file = locate_data(PAIRS, project / "runs/a", record), project / "data/pairs.tsv"
    facts = file.stat()
    assert find_changes(location, record, full=False) == []
    os.utime(file, ns=(1, 1))  # copied: another time, the same content
    assert find_changes(location, record, full=False) == []
    write(file, TEXT.replace("7", "8"))
    assert "another SHA-256" in find_changes(location, record, full=False)[0]
    os.utime(file, ns=(facts.st_atime_ns, facts.st_mtime_ns))  # hidden from the cheap check
    assert find_changes(location, record, full=False) == []
    with pytest.raises(UserError, match=r"has changed .* since this run was trained; .*--changed-data"):
        check_unchanged(location, record)
    write(file, TEXT * 2)
    assert "bytes then" in find_changes(location, record, full=False)[0]
    file.unlink()
    assert "is missing" in find_changes(location, record, full=False)[0]


def test_digests_are_cached(tmp_path):
    file = write(tmp_path / "a.tsv")
    first = load_digests([file], tmp_path / "cache")
    stored = next((tmp_path / "cache").glob("*/sha256.json"))
    stored.write_text('["other"]')
    assert load_digests([file], tmp_path / "cache") == ["other"] != first
    stored.write_text("{}")  # damaged
    assert load_digests([file], tmp_path / "cache") == first
    (tmp_path / "full").write_text("no folder")
    assert load_digests([file], tmp_path / "full") == first  # a cache that cannot be written


def test_home_folders_are_portable(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    assert make_portable("~/data/x") == "home/me/data/x"


def test_a_run_with_the_name_of_its_data_is_no_data(project, monkeypatch):
    run = project / "runs" / "pairs"
    write(project / "pairs" / "a.tsv")
    write(run / "config.toml", "")
    write(run / "info.json", "{}")
    data = TextDataConfig(train="pairs")
    record = record_of(project, data, monkeypatch)
    write(project / "pairs" / "a.tsv", TEXT + "more\tmore\n")
    location = locate_data(data, run, record)
    assert (Path(location.data.root) / location.data.train[0]).resolve() == project / "pairs"
