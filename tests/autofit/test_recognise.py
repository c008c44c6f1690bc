"""What `headwise fit` takes files for."""

import bz2
import csv
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from headwise.autofit.plan import find_task
from headwise.autofit.recognise import recognise
from headwise.autofit.recognition import describe_shape
from headwise.data.config import DATA
from headwise.data.corpora import open_training_pairs
from headwise.errors import UserError

TEXTS = [f"the {adjective} film of the year {year}" for year in range(1980, 2010) for adjective in ("good", "dull")]
LABELS = ["pos" if "good" in text else "neg" for text in TEXTS]
ROWS = list(zip(TEXTS, LABELS, strict=True))


def write_csv(path, rows, **options):
    with open(path, "w", newline="", encoding=options.pop("encoding", "utf-8")) as file:
        csv.writer(file, **options).writerows(rows)


def read_first(recognition):
    """The first pair, by the readers that an experiment uses."""
    return next(iter(open_training_pairs(DATA.parse(dict(recognition.data)))))


def case_comma(path):
    write_csv(path, [("text", "label"), *ROWS])


def case_semicolon_without_header(path):
    write_csv(path, ROWS, delimiter=";")


def case_quoted_everywhere(path):
    write_csv(path, [("text", "label"), *ROWS], quoting=csv.QUOTE_ALL, delimiter="|")


def case_crlf_and_mark(path):
    write_csv(path, [("text", "label"), *ROWS], encoding="utf-8-sig", lineterminator="\r\n")


def case_utf_16(path):
    write_csv(path, [("text", "label"), *ROWS], encoding="utf-16")


def case_tab(path):
    path.write_text("".join(f"{text}\t{label}\n" for text, label in ROWS))


def case_bzip2(path):
    path.write_bytes(bz2.compress("".join(f"{text}\t{label}\n" for text, label in ROWS).encode()))


def case_json_lines(path):
    path.write_text(
        "".join(json.dumps({"id": n, "t": text, "l": label}) + "\n" for n, (text, label) in enumerate(ROWS))
    )


def case_json_list(path):
    path.write_text(json.dumps([{"t": text, "l": label} for text, label in ROWS], indent=1))


def case_json_list_in_one_line(path):
    path.write_text(json.dumps({"version": {"n": [1]}, "data": [{"t": text, "l": label} for text, label in ROWS]}))


def case_parquet(path):
    pq.write_table(pa.table({"review": TEXTS, "sentiment": LABELS}), path)


def case_arrow(path):
    table = pa.table({"review": TEXTS, "sentiment": LABELS})
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)


CASES = [
    case_comma, case_semicolon_without_header, case_quoted_everywhere, case_crlf_and_mark, case_utf_16, case_tab,
    case_bzip2, case_json_lines, case_json_list, case_json_list_in_one_line, case_parquet, case_arrow,
]  # fmt: skip


@pytest.mark.parametrize("write", CASES)
@pytest.mark.parametrize("name", ["data", "wrong.txt"])
def test_labelled_texts_are_recognised_by_content(write, name, tmp_path):
    write(tmp_path / name)
    recognition = recognise([tmp_path / name])
    assert recognition.shape == "labelled", recognition
    assert find_task(recognition.shape) == "classify"
    assert read_first(recognition) == ROWS[0]
    assert not recognition.alternatives


def test_a_saved_data_set_with_splits(tmp_path):
    for split in ("train", "test"):
        folder = tmp_path / "set" / split
        folder.mkdir(parents=True)
        case_arrow(folder / "data-00000-of-00001.arrow")
        (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}))
        (folder / "dataset_info.json").write_text("{}")
    (tmp_path / "set" / "dataset_dict.json").write_text(json.dumps({"splits": ["train", "test"]}))
    recognition = recognise([tmp_path / "set"])
    assert recognition.shape == "labelled"
    assert recognition.data["test"] == [str(tmp_path / "set" / "test")]
    assert read_first(recognition) == ROWS[0]


def test_two_aligned_files(tmp_path):
    (tmp_path / "a").write_text("".join(text + "\n" for text in TEXTS))
    (tmp_path / "b").write_text("".join(text[::-1] + "\n" for text in TEXTS))
    (tmp_path / "labels").write_text("".join(label + "\n" for label in LABELS))
    (tmp_path / "tags").write_text("".join("D A N P D N Y\n" for _ in TEXTS))
    (tmp_path / "numbers").write_text("".join(f"{number / 7}\n" for number in range(len(TEXTS))))
    shapes = {name: recognise([tmp_path / "a", tmp_path / name]).shape for name in ("b", "labels", "tags", "numbers")}
    assert shapes == {"b": "pairs", "labels": "labelled", "tags": "tagged", "numbers": "numbers"}


def test_questions_with_answers(tmp_path):
    paragraph = {"context": "Ada wrote it.", "qas": [{"question": "Who?", "answers": [{"text": "Ada"}]}]}
    (tmp_path / "qa.json").write_text(json.dumps({"data": [{"paragraphs": [paragraph]}]}))
    recognition = recognise([tmp_path / "qa.json"])
    assert (recognition.shape, recognition.data["format"]) == ("spans", "squad")
    assert read_first(recognition) == ("Who?\tAda wrote it.", "Ada")
    row = {"question": "Who?", "context": "Ada wrote it.", "answers": {"text": ["Ada"], "answer_start": [0]}}
    (tmp_path / "qa.jsonl").write_text((json.dumps(row) + "\n") * 3)
    recognition = recognise([tmp_path / "qa.jsonl"])
    assert recognition.columns == ("question", "context", "answers.text")


def test_lists_of_words_and_tags(tmp_path):
    row = {"id": 1, "tokens": ["a", "dog"], "ner_tags": ["O", "B"]}
    (tmp_path / "ner.jsonl").write_text((json.dumps(row) + "\n") * 5)
    recognition = recognise([tmp_path / "ner.jsonl"])
    assert (recognition.shape, recognition.columns) == ("tagged", ("tokens", "ner_tags"))
    assert read_first(recognition) == ("a dog", "O B")


def test_plain_texts(tmp_path):
    (tmp_path / "book.txt").write_text("It was a long day\nand nobody knew\nwhy it was so.\n\nThen night fell\n")
    assert recognise([tmp_path / "book.txt"]).data["format"] == "text"
    (tmp_path / "texts").mkdir()
    for number in range(3):
        (tmp_path / "texts" / f"{number}.txt").write_text("A chapter.\n")
    assert recognise([tmp_path / "texts"]).shape == "texts"
    (tmp_path / "t.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    recognition = recognise([tmp_path / "t.jsonl"])
    assert (recognition.shape, recognition.columns) == ("texts", ("text",))


def test_prose_that_begins_with_a_bracket_is_no_json(tmp_path):
    (tmp_path / "song.txt").write_text("[Verse 1]\nIt was a long day\nand nobody knew\n\n[Chorus]\nwhy it was so\n")
    assert recognise([tmp_path / "song.txt"]).shape == "texts"


def test_a_folder_of_texts_for_each_label(tmp_path):
    for number, (text, label) in enumerate(ROWS[:6]):
        (tmp_path / "train" / label).mkdir(parents=True, exist_ok=True)
        (tmp_path / "train" / label / f"{number}.txt").write_text(text)
    recognition = recognise([tmp_path])
    assert recognition.shape == "labelled"
    assert sorted(open_training_pairs(DATA.parse(dict(recognition.data)))) == sorted(ROWS[:6])


@pytest.fixture
def images(tmp_path):
    for number in range(4):
        path = tmp_path / "images" / "cd"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((8, 8), 40 * number, np.uint8)).save(path)
    return tmp_path / "images"


def test_images_by_class(images):
    assert recognise([images]).shape == "images"


def test_images_with_boxes_or_captions(images):
    names = sorted(path.relative_to(images) for path in images.rglob("*.png"))
    (images / "captions.tsv").write_text("".join(f"{name}\ta grey square\n" for name in names))
    assert recognise([images]).shape == "captions"
    (images / "captions.tsv").unlink()
    boxes = {
        "images": [{"id": 1, "file_name": str(names[0]), "width": 8, "height": 8}],
        "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 1, 3, 3]}],
        "categories": [{"id": 1, "name": "square"}],
    }
    (images / "boxes.json").write_text(json.dumps(boxes))
    assert recognise([images]).shape == "boxes"
    boxes["images"] *= 2000  # annotations are beyond what is looked at first
    (images / "boxes.json").write_text(json.dumps(boxes))
    assert recognise([images]).shape == "boxes"


def test_the_task_and_the_columns_of_the_user_overrule(tmp_path):
    path = tmp_path / "stars.csv"
    write_csv(path, [("text", "stars"), *((text, n % 5) for n, text in enumerate(TEXTS))])
    found = recognise([path])
    assert (found.shape, [reading.shape for reading in found.alternatives]) == ("labelled", ["numbers"])
    assert recognise([path], shape="numbers").shape == "numbers"
    assert recognise([path], shape="pairs").shape == "pairs"
    assert recognise([path], columns=["text"]).shape == "texts"
    assert read_first(recognise([path], columns=["1", "2"])) == (TEXTS[0], "0")


def test_doubts_are_told(tmp_path):
    path = tmp_path / "rows.csv"
    write_csv(path, [("Satz", "Antwort"), *((text, text[::-1]) for text in TEXTS)])
    (warning,) = recognise([path]).warnings
    assert "is taken for a header" in warning and "--columns 1 2" in warning
    write_csv(path, [*ROWS, ("an odd film altogether", "mixed feelings about it all")], delimiter=";")
    warnings = recognise([path]).warnings
    assert any("looks like a sentence" in warning for warning in warnings)
    assert any("few examples" in warning for warning in warnings)


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("empty.csv", b"", "is empty"),
        ("blank.txt", b" \n\n", "is empty"),
        ("photo.csv", b"\x89PNG\r\n\x1a\n", "is one image; name a folder"),
        ("odd.json", b'{"a": 1,\n"b": 2}', "JSON of a kind that is not known (a, b)"),
        ("words.json", b'["a", "b"]', "JSON of a kind that is not known (a list); write a list of objects"),
        ("pandas.json", b'{"text": {"0": "a"},\n"label": {"0": "b"}}', "frame.to_json(path, orient='records'"),
        ("parts.json", b'{"train": [{"text": "a"}],\n"test": [{"text": "b"}]}', "has several lists (train, test)"),
        ("more.json", b'[{"text": "a"}] [{"text": "b"}]', "there is more after the end of the value, character 17"),
        ("broken.json", b'{"data": [', "is not valid JSON"),
        ("latin.csv", "text,label\nna\u00efve,a\n".encode("latin-1"), "not UTF-8"),
        ("numbers.csv", b"a,b\n1.5,2.5\n2.5,3.25\n3.5,1.75\n", "no column has texts"),
    ],
)
def test_what_cannot_be_learnt_from_is_refused_in_a_sentence(name, content, sentence, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError) as refusal:
        recognise([tmp_path / name])
    assert sentence in str(refusal.value) and name in str(refusal.value)


def test_wrong_paths_columns_and_shapes_are_refused(tmp_path):
    case_comma(tmp_path / "rows.csv")
    (tmp_path / "short").write_text("one line\n")
    (tmp_path / "long").write_text("one line\nanother line\n")
    (tmp_path / "nothing").mkdir()
    for files, options, sentence in [
        (["none.csv"], {}, "there is no such file or folder"),
        (["rows.csv"], {"columns": ["txt", "label"]}, "there is no column 'txt'; the columns are text, label"),
        (["rows.csv"], {"shape": "tagged"}, f"cannot be read as {describe_shape('tagged')}"),
        (["short", "long"], {}, "not aligned line by line"),
        (["nothing"], {}, "has no files"),
    ]:
        with pytest.raises(UserError, match=sentence):
            recognise([tmp_path / file for file in files], **options)
