"""Folders as people have them: parts by name, files without labels, languages, lists of images."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from film_reviews import LABELS, ROWS, TEXTS, read_all, write_lines, write_table
from PIL import Image

from headwise.autofit.recognise import recognise
from headwise.data.config import DATA
from headwise.errors import UserError
from headwise.vision.corpora import load_images

TAGGED = "-DOCSTART- -X- O\n\n" + "".join("film NN B-X\nis VBZ O\ngood JJ O\n\n" for _ in range(12))


def write_files(folder, files):
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return folder


@pytest.mark.parametrize(
    ("train", "test", "content", "unlabelled"),
    [
        ("train.csv", "test.csv", write_table([("text", "label"), *ROWS]), write_table([("text",), *zip(TEXTS)])),
        ("train.tsv", "test.tsv", write_table(ROWS, delimiter="\t"), "\n".join(TEXTS)),
        (
            "train.jsonl",
            "test.jsonl",
            write_lines([{"text": text, "label": label} for text, label in ROWS]),
            write_lines([{"text": text} for text in TEXTS]),
        ),
    ],
)
def test_a_test_part_without_labels_is_left_out_and_told(train, test, content, unlabelled, tmp_path):
    write_files(tmp_path, {train: content, test: unlabelled, "sample_submission.csv": "id,label\n1,0\n"})
    found = recognise([tmp_path])
    assert (found.shape, found.data["train"]) == ("labelled", [str(tmp_path / train)])
    assert "test" not in found.data and f"{test} is not read: there is no column" in "".join(found.warnings)
    write_files(tmp_path, {test: content})
    assert recognise([tmp_path]).data["test"] == [str(tmp_path / test)]


@pytest.mark.parametrize(
    "names",
    [
        ("eng.train", "eng.testa", "eng.testb"),
        ("train.txt", "valid.txt", "test.txt"),
        ("en-ud-train.conll", "en-ud-dev.conll", "en-ud-test.conll"),
    ],
)
def test_the_parts_of_tagged_words(names, tmp_path):
    found = recognise([write_files(tmp_path, dict.fromkeys(names, TAGGED) | {"README.md": "words"})])
    assert found.shape == "tagged"
    assert [found.data[part] for part in ("train", "valid", "test")] == [[str(tmp_path / name)] for name in names]


def test_files_of_one_kind_whatever_their_suffix(tmp_path):
    names = [f"wiki.{part}.tokens" for part in ("train", "valid", "test")]
    found = recognise([write_files(tmp_path / "wiki", dict.fromkeys(names, "It was a film\nand a good one\n" * 40))])
    assert (found.shape, found.data["test"]) == ("texts", [str(tmp_path / "wiki" / names[2])])
    sources = {f"{n}.py": f"def f{n}(x):\n    return x + {n}\n" for n in range(30)}
    found = recognise([write_files(tmp_path / "code", sources)])
    assert found.shape == "texts" and len(read_all(found)) == 30


def test_a_folder_of_texts_is_one_name(tmp_path):
    folder = write_files(tmp_path / "poems", {f"{n}.txt": f"{text}\nand so on\n" for n, text in enumerate(TEXTS)})
    assert recognise([folder]).data["train"] == [str(folder)]
    notes = write_files(tmp_path / "notes", {f"{n}.md": text for n, text in enumerate(TEXTS)})
    assert len(recognise([notes]).data["train"]) == len(TEXTS)
    write_files(folder, {"README.txt": "poems"})  # which is none
    assert len(recognise([folder]).data["train"]) == len(TEXTS)


def test_reviews_beside_others_without_a_label(tmp_path):
    """As in the reviews of Maas et al. (2011)."""
    files = {f"{part}/{label}/{n}.txt": text for part in ("train", "test") for n, (text, label) in enumerate(ROWS)}
    files |= {f"train/unsup/{n}.txt": text for n, text in enumerate(TEXTS)}
    found = recognise([write_files(tmp_path, files | {"train/urls.txt": "http", "README": "reviews"})])
    assert found.shape == "labelled" and sorted(read_all(found)) == sorted(ROWS)
    assert found.data["test"] and "61 texts without a label are not read" in found.warnings[0]


def test_files_of_two_languages(tmp_path):
    parts = {"train": 0, "val": 30, "test_2016": 45}
    sides = {"en": TEXTS, "de": [text.upper() for text in TEXTS]}
    files = {
        f"{part}.{side}": "\n".join(lines[start : start + 15])
        for part, start in parts.items()
        for side, lines in sides.items()
    }
    found = recognise([write_files(tmp_path, files)])
    assert (found.shape, read_all(found)[0]) == ("pairs", (TEXTS[0].upper(), TEXTS[0]))
    assert found.data["valid"] == [str(tmp_path / "val.de"), str(tmp_path / "val.en")] and "test" in found.data


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ({f"med/{n}": text for n, text in enumerate(TEXTS)}, "give texts a suffix: find "),
        ({"a.pos": "\n".join(TEXTS), "a.neg": "\n".join(TEXTS)}, "if each is a label, pack them: zip -rj "),
    ],
)
def test_what_to_do_with_files_of_no_kind(files, sentence, tmp_path):
    with pytest.raises(UserError, match=sentence):
        recognise([write_files(tmp_path, files)])


@pytest.fixture
def pictures(tmp_path):
    for number in range(24):
        path = tmp_path / "set" / "pictures" / f"{number:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((8, 8), 10 * number, np.uint8)).save(path)
    return tmp_path / "set"


NAMES = [f"{number:02}.png" for number in range(24)]
KINDS = ["dark" if number < 12 else "light" for number in range(24)]
CAPTIONS = [f"a {kind} square, of number {number}" for number, kind in enumerate(KINDS)]


def write_parquet(path, columns):
    pq.write_table(pa.table(columns), path)


@pytest.mark.parametrize(
    ("name", "write", "shape", "columns"),
    [
        (
            "labels.csv",
            lambda path: path.write_text(
                write_table([("id", "kind"), *((n[:2], k) for n, k in zip(NAMES, KINDS, strict=True))])
            ),
            "images",
            ["id", "kind"],
        ),
        (
            "pictures/metadata.csv",
            lambda path: path.write_text(write_table([("file_name", "text"), *zip(NAMES, CAPTIONS, strict=True)])),
            "captions",
            ["file_name", "text"],
        ),
        (
            "train.jsonl",
            lambda path: path.write_text(
                write_lines(
                    [{"image": f"pictures/{n}", "label": k == "dark"} for n, k in zip(NAMES, KINDS, strict=True)]
                )
            ),
            "images",
            ["image", "label"],
        ),
        (
            "captions.txt",
            lambda path: path.write_text(
                "".join(f"{n}#{k}\t{c}\n" for n, c in zip(NAMES, CAPTIONS, strict=True) for k in range(2))
            ),
            "captions",
            [],
        ),
        (
            "index.parquet",
            lambda path: write_parquet(path, {"path": [f"pictures/{n}" for n in NAMES], "class": KINDS}),
            "images",
            ["path", "class"],
        ),
    ],
)
def test_tables_that_list_images(name, write, shape, columns, pictures):
    write(pictures / name)
    for file in (pictures, pictures / name):
        if file.is_file() and not columns:
            continue  # alone, lines of two texts are pairs
        found = recognise([file])
        assert (found.shape, found.data.get("columns", [])) == (shape, columns)
        corpus = load_images(DATA.parse({**found.data, "cache": str(pictures.parent / "cache")}))
        assert len(corpus.train) + len(corpus.valid) == 24 * (2 if name == "captions.txt" else 1)
        pixels, target = corpus.train[0]
        brightness = int(pixels[0, 0, 0]) // 10
        expected = {"images": KINDS, "captions": CAPTIONS}[shape][brightness]
        assert target in (expected, str(expected == "dark").lower())


def test_lists_of_images_for_each_part_and_the_columns_of_the_user(pictures):
    rows = [(name, kind, LABELS[n // 2]) for n, (name, kind) in enumerate(zip(NAMES, KINDS, strict=True))]
    for part, span in {"train": slice(0, 24, 2), "val": slice(1, 24, 2)}.items():
        (pictures / f"{part}.csv").write_text(write_table([("image", "label", "other"), *rows[span]]))
    found = recognise([pictures])
    assert found.data["valid"] == [str(pictures / "val.csv"), str(pictures / "pictures")]
    corpus = load_images(DATA.parse({**found.data, "cache": str(pictures.parent / "cache")}))
    assert (len(corpus.train), len(corpus.valid)) == (12, 12)
    assert recognise([pictures], columns=["image", "other"]).columns == ("image", "other")
    assert recognise([pictures / "train.csv"], columns=["image", "other"], shape="captions").shape == "captions"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (
            write_table([("image", "age"), *((n, 20.5 + i) for i, n in enumerate(NAMES))]),
            "'age': number",
        ),
        (
            write_table([("image", "label"), *(("x" + n, k) for n, k in zip(NAMES, KINDS, strict=True))]),
            "names images .x00.png",
        ),
    ],
)
def test_lists_of_images_that_cannot_be_learnt_from(content, sentence, pictures):
    (pictures / "list.csv").write_text(content)
    with pytest.raises(UserError, match=sentence):
        recognise([pictures / "list.csv"])


def test_boxes_in_the_folders_of_coco_and_boxes_of_others(pictures):
    images = [{"id": n, "file_name": name, "width": 8, "height": 8} for n, name in enumerate(NAMES)]
    boxes = [{"id": n, "image_id": n, "category_id": 1, "bbox": [1, 1, 3, 3]} for n in range(24)]
    captions = [{"id": n, "image_id": n, "caption": text} for n, text in enumerate(CAPTIONS)]
    kinds = [{"id": 1, "name": "square"}]
    (pictures / "pictures").rename(pictures / "train2017")
    for name, annotations in {"instances": boxes, "captions": captions}.items():
        content = {"images": images, "annotations": annotations, "categories": kinds}
        write_files(pictures, {f"annotations/{name}_train2017.json": json.dumps(content)})
    found = recognise([pictures])
    assert found.shape == "boxes" and "has captions of the images, too" in found.warnings[0]
    assert recognise([pictures], shape="captions").shape == "captions"
    for suffix, kind in ((".txt", "YOLO"), (".xml", "PASCAL VOC")):
        folder = write_files(
            pictures.parent / kind, {f"labels/{name[:2]}{suffix}": "0 0.5 0.5 1 1\n" for name in NAMES}
        )
        (folder / "images").symlink_to(pictures / "train2017")
        for name in NAMES:
            (folder / name).write_bytes((pictures / "train2017" / name).read_bytes())
        with pytest.raises(UserError, match=f"as {kind} writes boxes; write them as COCO's JSON"):
            recognise([folder])


def test_the_parts_of_classes_by_their_usual_names(pictures):
    for number, name in enumerate(NAMES):
        part = ("training", "testing")[number % 2]
        target = pictures.parent / "classes" / part / KINDS[number] / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((pictures / "pictures" / name).read_bytes())
    found = recognise([pictures.parent / "classes"])
    corpus = load_images(DATA.parse({**found.data, "cache": str(pictures.parent / "cache")}))
    assert set(corpus.train.targets) == {"dark", "light"} and len(corpus.test) == 12
