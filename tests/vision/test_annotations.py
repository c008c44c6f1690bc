"""Annotations: boxes in COCO's JSON, captions as TSV."""

import json

import numpy as np
import pytest
from PIL import Image

from headwise.errors import UserError
from headwise.vision.config import ImagesConfig
from headwise.vision.corpora import load_images
from headwise.vision.image_index import resolve_below


def load(root, **settings):
    return load_images(ImagesConfig(root=str(root), cache=str(root / "cache"), valid_fraction=0.2, **settings))


def targets(corpus):
    """The target of each image, by the file's name."""
    return {
        name.rpartition("/")[2]: target
        for part in (corpus.train, corpus.valid)
        for name, target in zip(part.names, part.targets, strict=True)
    }


COCO = {
    "images": [{"id": 7 + n, "file_name": f"{n}.png", "width": 20, "height": 10} for n in range(4)],
    "annotations": [
        {"image_id": 7, "category_id": 3, "bbox": [6, 2, 4, 6]},
        {"image_id": 7, "category_id": 1, "bbox": [0, 0, 2, 2], "iscrowd": 1},
        {"image_id": 8, "category_id": 1, "bbox": [2, 1, 6, 3]},
        {"image_id": 8, "category_id": 1, "bbox": [2, 1, 0, 3]},
    ],
    "categories": [{"id": 3, "name": "cat"}, {"id": 1, "name": "person"}],
}


@pytest.fixture
def coco(tmp_path):
    (tmp_path / "pictures").mkdir()
    for number in range(4):
        grey = np.full((10, 20), number, np.uint8)
        Image.fromarray(grey).save(tmp_path / "pictures" / f"{number}.png")
    return tmp_path


def with_list(root, **changes):
    (root / "list.json").write_text(json.dumps({**COCO, **changes}))
    return load(root, format="coco", train=("list.json", "pictures"))


def test_boxes_are_corners_with_names_and_images_without_any_stay(coco):
    boxes = targets(with_list(coco))
    assert boxes["0.png"].corners.tolist() == [[6, 2, 10, 8], [0, 0, 2, 2]]
    assert boxes["0.png"].labels == ("cat", "person") and boxes["0.png"].crowd == (False, True)
    assert boxes["1.png"].corners.tolist() == [[2, 1, 8, 4]]  # the other one has no area
    assert len(boxes["2.png"]) == len(boxes["3.png"]) == 0


def test_boxes_move_as_images_are_cropped_and_resized(coco):
    """The middle 10 x 10 of 20 x 10 pixels, in half the size."""
    (coco / "list.json").write_text(json.dumps(COCO))
    boxes = targets(load(coco, format="coco", train=("list.json", "pictures"), size=5))
    assert boxes["0.png"].corners.tolist() == [[0.5, 1, 2.5, 4]]
    assert boxes["0.png"].labels == ("cat",)  # the person was on the left
    assert boxes["1.png"].corners.tolist() == [[0, 0.5, 1.5, 2]]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"categories": {}}, 'no list "categories"'),
        ({"images": [{"id": 1, "file_name": "0.png", "width": 20}]}, r'images\[0\] has no "height"'),
        ({"images": []}, "no images"),
        ({"images": COCO["images"][:1] * 2, "annotations": []}, "same id"),
        ({"images": [{**COCO["images"][0], "file_name": "../x.png"}], "annotations": []}, "not a file below"),
        ({"images": [{**COCO["images"][0], "file_name": "/x.png"}], "annotations": []}, "not a file below"),
        ({"images": [{**COCO["images"][0], "width": "x"}]}, "not in COCO's format"),
        ({"annotations": [{"image_id": 99, "category_id": 3, "bbox": [0, 0, 1, 1]}]}, r"annotations\[0\]"),
        ({"annotations": [{"image_id": 7, "category_id": 9, "bbox": [0, 0, 1, 1]}]}, r"annotations\[0\]"),
        ({"annotations": [{"image_id": 7, "category_id": 3, "bbox": [0, 0, 1]}]}, "not in COCO's format"),
        ({"annotations": [{"image_id": 7, "category_id": 3, "bbox": [0, 0, 1, float("inf")]}]}, r"annotations\[0\]"),
        ({"images": [{**image, "width": 10, "height": 20} for image in COCO["images"]]}, "its annotation says 10 x 20"),
    ],
)  # fmt: skip
def test_errors_in_a_coco_file_are_named(coco, changes, sentence):
    with pytest.raises(UserError, match=sentence):
        with_list(coco, **changes)


def test_invalid_json_is_an_error(coco):
    for content in ("{", "[]", "[" * 100_000):
        (coco / "list.json").write_text(content)
        with pytest.raises(UserError, match=r"list.json: "):
            load(coco, format="coco", train=("list.json", "pictures"))


def test_captions_of_one_image_are_never_in_two_parts(coco):
    lines = [f"{n}.png\tcaption {k} of {n}" for n in range(4) for k in range(3)]
    (coco / "pictures" / "captions.tsv").write_text("\n".join(lines))
    corpus = load(coco, format="captions", train="pictures/captions.tsv")
    assert sorted(corpus.train.targets + corpus.valid.targets) == sorted(line.partition("\t")[2] for line in lines)
    assert not set(corpus.train.names) & set(corpus.valid.names)
    for part in (corpus.train, corpus.valid):
        assert all(pixels[0, 0, 0] == int(caption.split()[3]) for pixels, caption in part)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("0.png\n", r"list.tsv, line 1: write the image's file"),
        ("0.png\ta\n\n1.png\ta\tb\n", r"list.tsv, line 3: write the image's file"),
        ("../0.png\ta\n", r"line 1: '../0.png' is not a file below"),
        ("\n", "no captions"),
        ("0.png\ta\n9.png\tb\n", r"9.png: cannot be read \(No such file"),
    ],
)
def test_errors_in_captions_are_named(coco, content, sentence):
    (coco / "list.tsv").write_text(content)
    with pytest.raises(UserError, match=sentence):
        load(coco, format="captions", train=("list.tsv", "pictures"))


@pytest.mark.parametrize("name", ["\ud800.png", "a\0.png"])
def test_names_that_no_file_can_have_are_refused(tmp_path, name):
    with pytest.raises(UserError, match="is not a file below"):
        resolve_below(tmp_path, name, "list.json")
