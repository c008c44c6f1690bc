"""Images of a run that was moved: found again, and changes noticed."""

from pathlib import Path

import pytest
from PIL import Image

from headwise.data.digests import record_files
from headwise.data.locate import check_files, check_unchanged, find_changes, list_data_files, locate_data
from headwise.errors import UserError
from headwise.runs.data_record import DataRecord
from headwise.vision.config import ImagesConfig
from headwise.vision.corpora import load_images


@pytest.fixture
def pictures(tmp_path, monkeypatch) -> Path:
    """Ten greyscale images of each class, and the captions of all."""
    for number in range(20):
        path = tmp_path / "pictures" / ("cat", "dog")[number % 2] / f"{number:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (4, 4), number).save(path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def make_record(data: ImagesConfig, folder: Path, monkeypatch) -> DataRecord:
    monkeypatch.chdir(folder)
    record = DataRecord(str(folder), "", tuple(record_files(load_images(data).files, folder / "cache")))
    monkeypatch.chdir("/")
    return record


@pytest.mark.parametrize("absolute", [False, True])
def test_a_folder_of_images_is_found_beside_the_run(pictures, monkeypatch, absolute):
    data = ImagesConfig(train=str(pictures / "pictures") if absolute else "pictures", valid_fraction=0.2)
    record = make_record(data, pictures, monkeypatch)
    assert len(record.files) == 20
    run = pictures / "other" / "run"
    run.mkdir(parents=True)
    (pictures / "pictures").rename(pictures / "other" / "pictures")
    location = locate_data(data, run, record)
    assert load_images(location.data).files[0].is_relative_to(pictures / "other")
    check_unchanged(location, record)
    assert len(list_data_files(data, run, record)) == 20

    Image.new("L", (4, 4), 200).save(pictures / "other/pictures/cat/00.png")
    assert len(find_changes(location, record, full=True)) == 1
    Image.new("L", (4, 4), 201).save(pictures / "other/pictures/cat/new.png")
    with pytest.raises(UserError, match=r"new\.png was added"):
        check_files(location, record, load_images(location.data).files)


def test_annotations_are_recorded_with_their_images(pictures, monkeypatch):
    rows = [f"pictures/{('cat', 'dog')[number % 2]}/{number:02}.png\tno. {number}\n" for number in range(20)]
    (pictures / "captions.tsv").write_text("".join(rows))
    data = ImagesConfig(train="captions.tsv", format="captions", valid_fraction=0.2)
    record = make_record(data, pictures, monkeypatch)
    assert record.files[0].path == "captions.tsv" and len(record.files) == 21
    location = locate_data(data, pictures / "run", record)
    (pictures / "captions.tsv").write_text("".join(rows).replace("no. 1\n", "no. 7\n"))
    with pytest.raises(UserError, match=r"captions\.tsv has changed"):
        check_unchanged(location, record)
