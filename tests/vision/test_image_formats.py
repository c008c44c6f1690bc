"""Image formats: pixels and targets are read as they were written, and errors name the file."""

import gzip
import json
import os
import struct
import zipfile

import numpy as np
import pytest
from PIL import Image

from headwise.errors import UserError
from headwise.vision.config import ImagesConfig
from headwise.vision.corpora import load_images
from headwise.vision.readers import npz

RANDOM = np.random.default_rng(3)


def noise(*shape):
    return RANDOM.integers(0, 256, shape, np.uint8)


def load(root, **settings):
    return load_images(ImagesConfig(root=str(root), cache=str(root / "cache"), valid_fraction=0.1, **settings))


def pairs(corpus):
    """All images of a set as (pixels, target), whichever part they are in."""
    parts = (corpus.train, corpus.valid, corpus.test)
    return {(pixels.tobytes(), target) for part in parts for pixels, target in part}


def expected(pixels, targets):
    return {(image.tobytes(), target) for image, target in zip(pixels, targets, strict=True)}


def idx(values, code=8):
    return bytes([0, 0, code, values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape) + values.tobytes()


@pytest.fixture
def mnist(tmp_path):
    pixels, labels = noise(20, 5, 4), np.arange(20, dtype=np.uint8) % 3
    (tmp_path / "images.gz").write_bytes(gzip.compress(idx(pixels)))
    (tmp_path / "labels").write_bytes(idx(labels))
    return tmp_path, pixels, labels


def test_idx_files_plain_or_gzip(mnist):
    root, pixels, labels = mnist
    corpus = load(root, format="idx", train=("images", "labels"))  # packed, as it is not there unpacked
    assert pairs(corpus) == expected(pixels, [str(label) for label in labels])
    assert corpus.train.pixels.shape[1:] == (1, 5, 4)
    named = load(root, format="idx", train=("images.gz", "labels"), classes=("a", "b", "c"))
    assert pairs(named) == expected(pixels, ["abc"[label] for label in labels])


def test_images_of_an_array_are_resized_and_coloured(mnist):
    corpus = load(mnist[0], format="idx", train=("images", "labels"), size=3, channels=3)
    assert corpus.train.pixels.shape[1:] == (3, 3, 3)
    assert (corpus.train.pixels[:, 0] == corpus.train.pixels[:, 2]).all()


@pytest.mark.parametrize(
    ("file", "content", "sentence"),
    [
        ("images.gz", gzip.compress(idx(noise(20, 5, 4))[:-1]), "not complete"),
        ("images.gz", gzip.compress(idx(noise(20, 5, 4)) + b"more"), "not complete"),
        ("images.gz", gzip.compress(bytes([0, 0, 8, 3]) + struct.pack(">III", 2**31, 2**10, 2**10)), "not complete"),
        ("images.gz", gzip.compress(idx(noise(20, 5, 4)))[:40], "gzip"),
        ("images.gz", gzip.compress(idx(noise(19, 5, 4))), "19 images and 20 labels"),
        ("images.gz", gzip.compress(idx(noise(20, 20))), "no IDX file of images"),
        ("labels", idx(noise(20), code=9), "no IDX file of labels"),
        ("labels", b"", "no IDX file of labels"),
        ("labels", idx(np.full(20, 7, np.uint8)), "all images to train on are of the class '7'"),
    ],
    ids=lambda value: "" if isinstance(value, bytes) else None,  # gzip writes the time into its bytes
)
def test_errors_in_idx_files_are_named(mnist, file, content, sentence):
    (mnist[0] / file).write_bytes(content)
    with pytest.raises(UserError, match=sentence):
        load(mnist[0], format="idx", train=("images", "labels"))


def test_labels_without_a_class_name_are_refused(mnist):
    with pytest.raises(UserError, match="from 0 to 2, and 2 classes"):
        load(mnist[0], format="idx", train=("images", "labels"), classes=("a", "b"))


@pytest.mark.parametrize(("before", "beside"), [(1, "batches.meta.txt"), (2, "fine_label_names.txt")])
def test_cifar_records(tmp_path, before, beside):
    pixels, labels = noise(12, 3, 32, 32), np.arange(12, dtype=np.uint8) % 2
    coarse = np.full((12, before - 1), 99, np.uint8)
    records = np.concatenate([coarse, labels[:, None], pixels.reshape(12, -1)], 1)
    records[:8].tofile(tmp_path / "a.bin")
    records[8:].tofile(tmp_path / "b.bin")
    assert pairs(load(tmp_path, format="cifar", train=("a.bin", "b.bin"))) == expected(pixels, map(str, labels))
    (tmp_path / beside).write_text("cat\ndog\n")
    named = load(tmp_path, format="cifar", train=("a.bin", "b.bin"))
    assert pairs(named) == expected(pixels, [("cat", "dog")[label] for label in labels])
    records[0, :-5].tofile(tmp_path / "a.bin")
    with pytest.raises(UserError, match=r"a.bin: is no complete binary file of CIFAR"):
        load(tmp_path, format="cifar", train=("a.bin", "b.bin"))


def test_images_that_are_lines_of_a_png(tmp_path):
    pixels, labels = noise(10, 3, 4, 4), [number % 2 for number in range(10)]
    for name, part in (("a.png", pixels[:6]), ("b.png", pixels[6:])):
        lines = part.transpose(0, 2, 3, 1).reshape(len(part), 16, 3)
        Image.fromarray(lines).save(tmp_path / name)
    (tmp_path / "labels.json").write_text(json.dumps(labels))
    corpus = load(tmp_path, format="rows", train=("a.png", "b.png", "labels.json"))
    assert pairs(corpus) == expected(pixels, map(str, labels))
    (tmp_path / "labels.json").write_text('{"0": 1}')
    with pytest.raises(UserError, match="list of numbers"):
        load(tmp_path, format="rows", train=("a.png", "b.png", "labels.json"))


@pytest.mark.parametrize("kind", ["grey", "channels last", "channels first", "numbers", "wide"])
def test_npz_accepts_every_layout_of_arrays(tmp_path, kind):
    pixels = noise(10, 1 if kind == "grey" else 3, 6, 5)
    arrays = {
        "grey": pixels[:, 0],
        "channels last": pixels.transpose(0, 2, 3, 1),
        "channels first": pixels,
        "numbers": pixels.astype(np.float32) / 255,
        "wide": pixels.astype(np.int64),
    }
    labels = np.arange(10)[:, None] % 2  # as Keras has them
    np.savez_compressed(tmp_path / "x.npz", images=arrays[kind], labels=labels, classes=np.array(["a", "b"]))
    assert pairs(load(tmp_path, format="npz", train="x.npz")) == expected(pixels, ["ab"[n % 2] for n in range(10)])


def test_npz_with_parts(tmp_path):
    train, test = noise(20, 4, 4), noise(6, 4, 4)
    words = np.array(["cat", "dog"])
    np.savez(
        tmp_path / "x.npz",
        x_train=train,
        y_train=words[np.arange(20) % 2],
        x_test=test,
        y_test=words[np.arange(6) % 2],
    )
    corpus = load(tmp_path, format="npz", train="x.npz")
    assert [len(part) for part in (corpus.train, corpus.valid, corpus.test)] == [18, 2, 6]
    assert (corpus.test.pixels[:, 0] == test).all()  # in the order of the file
    assert corpus.test.targets == ["cat", "dog"] * 3


class Canary:
    def __reduce__(self):
        return os.mkdir, ("canary",)


def test_npz_files_run_no_code_and_are_limited_in_size(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez(tmp_path / "x.npz", images=np.array([Canary()], object), labels=np.zeros(1, int))
    with pytest.raises(UserError, match=r"x.npz: is not a complete .npz file of plain arrays"):
        load(tmp_path, format="npz", train="x.npz")
    assert not (tmp_path / "canary").exists()
    np.savez_compressed(tmp_path / "x.npz", images=np.zeros((4, 99, 99), np.uint8), labels=np.arange(4))
    monkeypatch.setattr(npz, "MAX_BYTES", 1000)
    with pytest.raises(UserError, match="decompression bomb"):
        load(tmp_path, format="npz", train="x.npz")


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"pictures": np.zeros(3)}, "has the arrays pictures; name them images and labels"),
        ({"images": np.zeros((4, 9)), "labels": np.arange(4)}, r"images has the shape \(4, 9\)"),
        ({"images": np.full((4, 9, 9), 300.0), "labels": np.arange(4)}, "values from 300 to 300"),
        ({"images": np.full((4, 9, 9), np.nan), "labels": np.arange(4)}, "values from nan"),
        ({"images": np.zeros((4, 9, 9)), "labels": np.zeros(4)}, "labels are integers or strings"),
        ({"images": np.zeros((4, 9, 9)), "labels": np.arange(5)}, "4 images and 5 labels"),
    ],
)
def test_errors_in_arrays_are_named(tmp_path, arrays, sentence):
    np.savez(tmp_path / "x.npz", **arrays)
    with pytest.raises(UserError, match=sentence):
        load(tmp_path, format="npz", train="x.npz")


def test_a_truncated_npz_is_an_error(tmp_path):
    np.savez(tmp_path / "x.npz", images=noise(9, 4, 4), labels=np.arange(9))
    content = (tmp_path / "x.npz").read_bytes()
    for end in range(0, len(content), 97):
        (tmp_path / "x.npz").write_bytes(content[:end])
        with pytest.raises(UserError, match=r"x.npz"):
            load(tmp_path, format="npz", train="x.npz")
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:  # a header that claims terabytes
        header = b"{'descr': '|u1', 'fortran_order': False, 'shape': (1099511627776, 9, 9), }\n"
        archive.writestr("images.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header)
        archive.writestr("labels.npy", b"")
    with pytest.raises(UserError, match=r"x.npz"):
        load(tmp_path, format="npz", train="x.npz")
