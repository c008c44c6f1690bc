"""What `headwise fit` says of files as strangers have them."""

import csv
import io
import json
import os
import re
import subprocess
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from headwise.autofit.fit import describe, prepare_fit
from headwise.autofit.recognise import recognise
from headwise.cli.main import main
from headwise.data.config import DATA
from headwise.data.corpora import open_training_pairs
from headwise.errors import UserError
from headwise.vision.corpora import load_images

TEXTS = [f"the {adjective} film of the year {year}" for year in range(1980, 2010) for adjective in ("good", "dull")]
LABELS = ["pos" if "good" in text else "neg" for text in TEXTS]
WORDS = [left + right for left in "bdfgklm" for right in ("ay", "ow", "ite", "all", "end", "ore")]
ROWS = list(zip(TEXTS, LABELS, strict=True))


def write_table(rows, **options):
    file = io.StringIO()
    csv.writer(file, lineterminator="\n", **options).writerows(rows)
    return file.getvalue()


def write_lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def read_all(recognition):
    return list(open_training_pairs(DATA.parse(dict(recognition.data))))


def test_semicolons_with_decimal_commas(tmp_path):
    rows = [("Note", "Text"), *((f"{n / 7:.2f}".replace(".", ","), text) for n, text in enumerate(TEXTS))]
    (tmp_path / "noten.csv").write_text(write_table(rows, delimiter=";"))
    found = recognise([tmp_path / "noten.csv"])
    assert (found.shape, found.data["separator"], found.columns) == ("numbers", ";", ("Text", "Note"))
    assert read_all(found)[1] == (TEXTS[1], "0,14")


def test_quoted_line_breaks(tmp_path):
    rows = [("text", "label"), *((text.replace(" of ", "\nof, "), label) for text, label in ROWS)]
    (tmp_path / "rows.csv").write_text(write_table(rows))
    pairs = read_all(recognise([tmp_path / "rows.csv"]))
    assert len(pairs) == len(ROWS)
    assert pairs[0][0].split() == ROWS[0][0].replace(" of ", " of, ").split()


def test_whole_numbers_are_labels_and_others_are_predicted(tmp_path):
    (tmp_path / "a.tsv").write_text(
        "sentence\tlabel\n" + "".join(f"{text}\t{number % 2}\n" for number, text in enumerate(TEXTS))
    )
    found = recognise([tmp_path / "a.tsv"])
    assert (found.shape, [reading.shape for reading in found.alternatives]) == ("labelled", ["numbers"])
    (tmp_path / "b.tsv").write_text(
        "sentence\tscore\n" + "".join(f"{text}\t{number / 7:.3f}\n" for number, text in enumerate(TEXTS))
    )
    assert recognise([tmp_path / "b.tsv"]).shape == "numbers"


def test_the_column_of_stars_goes_before_one_without_a_usual_name(tmp_path):
    rows = [{"stars": float(n % 5), "text": text, "useful": n % 3} for n, text in enumerate(TEXTS)]
    (tmp_path / "reviews.json").write_text(write_lines(rows))
    found = recognise([tmp_path / "reviews.json"])
    assert found.columns == ("text", "stars")
    assert any("(useful); to choose another: --columns text useful" in warning for warning in found.warnings)


def test_columns_that_are_not_read_are_told(tmp_path):
    rows = [("title", "body", "comment", "topic"), *((text[4:], text, text[::-1], label) for text, label in ROWS)]
    (tmp_path / "posts.csv").write_text(write_table(rows))
    found = recognise([tmp_path / "posts.csv"])
    assert found.shape == "labelled"
    assert any("other columns have texts, too, and are not read" in warning for warning in found.warnings)
    pq.write_table(pa.table({"text": TEXTS, "labels": [["a", "b"][: n % 2 + 1] for n in range(60)]}), tmp_path / "m")
    with pytest.raises(UserError, match=r"lists of labels, .*; keep one of them; or learn the texts alone"):
        recognise([tmp_path / "m"])
    found = recognise([tmp_path / "m"], shape="texts")
    assert "column 'labels' has lists, which are no label of a text, and is not read" in found.warnings


def test_two_texts_with_a_label(tmp_path):
    rows = [("premise", "hypothesis", "label"), *((text, text[::-1], label) for text, label in ROWS)]
    (tmp_path / "nli.tsv").write_text("".join("\t".join(row) + "\n" for row in rows))
    found = recognise([tmp_path / "nli.tsv"])
    assert (found.shape, found.columns) == ("labelled", ("premise", "hypothesis", "label"))


def test_what_is_known_about_a_text_is_no_label(tmp_path):
    rows = [{"text": text, "meta": {"source": label, "id": n}} for n, (text, label) in enumerate(ROWS)]
    (tmp_path / "pile.jsonl").write_text(write_lines(rows))
    assert recognise([tmp_path / "pile.jsonl"]).shape == "texts"
    assert recognise([tmp_path / "pile.jsonl"], columns=["text", "meta.source"]).shape == "labelled"


def test_nested_values_are_columns(tmp_path):
    (tmp_path / "rows.json").write_text(json.dumps({"data": [{"item": {"body": a, "tag": b}} for a, b in ROWS]}))
    assert recognise([tmp_path / "rows.json"]).columns == ("item.body", "item.tag")


def test_instructions_are_read_where_inputs_are_blank(tmp_path):
    rows = [{"instruction": text, "input": "", "output": text[::-1]} for text in TEXTS]
    (tmp_path / "alpaca.json").write_text(json.dumps(rows, indent=1))
    assert recognise([tmp_path / "alpaca.json"]).columns == ("instruction", "output")


def test_rows_that_lack_a_cell_are_left_out_and_counted(tmp_path):
    rows = [(text if n % 9 else "", label if n % 7 else "") for n, (text, label) in enumerate(ROWS)]
    (tmp_path / "rows.csv").write_text(write_table([("text", "label"), *rows]))
    found = recognise([tmp_path / "rows.csv"])
    complete = [row for row in rows if all(row)]
    assert read_all(found) == complete
    assert any(f"{59 - len(complete)} of 60 rows lack a text or the target" in warning for warning in found.warnings)


def test_documents_of_conll_2003(tmp_path):
    sentence = "".join(f"{word} NN I-NP {'B-LOC' if word == 'film' else 'O'}\n" for word in TEXTS[0].split())
    (tmp_path / "eng.train").write_text(("-DOCSTART- -X- O O\n\n" + (sentence + "\n") * 3) * 4)
    found = recognise([tmp_path / "eng.train"])
    assert (found.shape, found.data["format"]) == ("tagged", "conll")
    assert read_all(found)[0] == (TEXTS[0], "O O B-LOC O O O O")


@pytest.mark.parametrize("folder", [".", "train2017"])
def test_captions_of_coco(folder, tmp_path):
    (tmp_path / folder).mkdir(exist_ok=True)
    for number in range(20):
        pixels = np.full((8, 8, 3), 10 * number, np.uint8)
        Image.fromarray(pixels).save(tmp_path / folder / f"{number}.png")
    images = [{"id": number, "file_name": f"{number}.png"} for number in range(20)]
    captions = [{"id": n, "image_id": n % 20, "caption": f"a grey\nsquare {n}"} for n in range(40)]
    (tmp_path / "captions.json").write_text(json.dumps({"images": images, "annotations": captions}))
    for path in (tmp_path, tmp_path / "captions.json"):
        found = recognise([path])
        assert found.shape == "captions"
        data = DATA.parse({**found.data, "size": (8, 8), "cache": str(tmp_path / "cache")})
        corpus = load_images(data)
        assert "a grey square 7" in {*corpus.train.targets, *corpus.valid.targets, *corpus.test.targets}


def write_zip(path, name):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, write_table([("text", "label"), *ROWS]))


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("noise.bin", os.urandom(5000), "is no text, and no table, image or archive of a known kind"),
        ("null.txt", b"a\0b\n" * 100, "is no text"),
        ("a.pdf", b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n", "is a PDF; write its text into a file"),
        ("a.db", b"SQLite format 3\0" + bytes(100), "is an SQLite database"),
        ("a.pkl", b"\x80\x04\x95" + bytes(40), "is a pickle, which could run code and is not read"),
        ("one.csv", b"text,label\na good film,pos\n", "has 1 different text, too few to hold some out; add rows"),
        (
            "same.csv",
            write_table([("text", "label"), *((text, "pos") for text in TEXTS)]).encode(),
            "column 'label' is 'pos' in all rows: nothing to tell apart; add rows with other labels, or read the texts "
            "alone: --columns text",
        ),
        (
            "ragged.csv",
            b"text,label\n" + b"".join(b"good, they say,pos\nbad,neg\n" for _ in range(20)),
            "row 2: has 3 cells, and the header 2; quote the cells",
        ),
        (
            "fast text.txt",
            "".join(f"__label__{label} {text}\n" for text, label in ROWS).encode(),
            "write text, tab, label: sed -E 's/^__label__([^ ]+) +(.*)/\\2\\t\\1/'",
        ),
        (
            "pairs.txt",
            "".join(f"{text} ||| {text[::-1]}\n" for text in TEXTS).encode(),
            "write source, tab, target: sed -E 's/ *[|]{3} */\\t/' pairs.txt > pairs.tsv",
        ),
        (
            "chats.json",
            json.dumps([{"messages": [{"role": "user", "content": text}] * 2} for text in TEXTS]).encode(),
            "jq -c '.[] | {prompt: .messages[-2].content, response: .messages[-1].content}'",
        ),
        (
            "chat.jsonl",
            write_lines([{"messages": [{"role": "user", "content": text}] * 2} for text in TEXTS]).encode(),
            "jq -c '{prompt: .messages[-2].content, response: .messages[-1].content}'",
        ),
        (
            "prices.csv",
            write_table([("about", "price"), *((text, f"${n:,}.99") for n, text in enumerate(TEXTS))]).encode(),
            "column 'price' has figures such as '$0.99'; write plain numbers to predict them, such as 0.99",
        ),
        (
            "tags.jsonl",
            write_lines([{"text": text, "labels": [label, "film"]} for text, label in ROWS]).encode(),
            "column 'labels' has lists of labels, and a text has one label; keep the first one, such as with: jq -c "
            "'.labels |= .[0]' tags.jsonl > one-label.jsonl; or learn the texts alone: --task language-model",
        ),
        (
            "columns.json",
            json.dumps({"text": TEXTS, "label": LABELS}).encode(),
            "write its columns as rows: jq -c '[.text, .label] | transpose[] | {text: .[0], label: .[1]}' columns.json",
        ),
        (
            "spaces.csv",
            "".join(f'"{text}, they say" , {label}\n' for text, label in [("text", "label"), *ROWS]).encode(),
            "line 1: text between a closing quote and the next ','; double the quotes that belong to a cell, and put "
            "no space after one that closes it",
        ),
        ("lists.jsonl", write_lines([list(row) for row in ROWS]).encode(), "has a list in each line; write objects"),
    ],
)
def test_refusals_are_one_sentence_and_nothing_is_written(name, content, sentence, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(SystemExit) as leave:
        main(["fit", name, "--minutes", "0.01"])
    assert leave.value.code == 2
    captured = capsys.readouterr()
    (line,) = captured.err.splitlines()
    assert line.startswith(f"headwise: {name}") and sentence in line
    assert not captured.out and os.listdir() == [name]


@pytest.mark.parametrize(
    ("name", "content", "shape", "pairs"),
    [
        ("a b.txt", "".join(f"__label__{label} {text}\n" for text, label in ROWS), "labelled", ROWS),
        ("pairs.txt", "".join(f"{text} ||| {text} too\n" for text in TEXTS), "pairs", [(t, f"{t} too") for t in TEXTS]),
        (
            "table.md",
            "| text | label |\n|:---|---|\n" + "".join(f"| {text} | {label} |\n" for text, label in ROWS),
            "labelled",
            ROWS,
        ),
        (
            "some.fasta",
            "".join(f">protein {n}\n{'MKV' * n}\nACDE\n" for n in range(1, 40)),
            "texts",
            [("", "MKV" * n + "ACDE") for n in range(1, 40)],
        ),
        (
            "words.dict",
            "".join(f"{text}  {text.upper()} {text}\n" for text in WORDS),
            "pairs",
            [(text, f"{text.upper()} {text}") for text in WORDS],
        ),
        ("old mac.csv", "\r".join(f"{text}\t{label}" for text, label in ROWS), "labelled", ROWS),
    ],
)
def test_the_command_that_a_refusal_names_writes_what_is_read(name, content, shape, pairs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path(name).write_bytes(content.encode())
    with pytest.raises(UserError) as refusal:
        recognise([Path(name)])
    command = re.split("; write |; convert ", str(refusal.value))[1].partition(": ")[2]
    subprocess.run(command, shell=True, check=True)
    (written,) = set(os.listdir()) - {name}
    found = recognise([Path(written)])
    assert found.shape == shape
    if shape == "texts":
        assert Path(written).read_text().split() == [target for _, target in pairs]
    else:
        assert read_all(found) == pairs


@pytest.mark.parametrize(
    ("member", "sentence"),
    [
        ("reviews.csv", "is a zip archive (reviews.csv in it); unpack it: unzip"),
        ("xl/workbook.xml", "is an Excel workbook; save the sheet as CSV"),
        ("word/document.xml", "is a Word document"),
    ],
)
def test_archives_without_labels_are_refused(member, sentence, tmp_path):
    write_zip(tmp_path / "a.zip", member)
    with pytest.raises(UserError) as refusal:
        recognise([tmp_path / "a.zip"])
    assert sentence in str(refusal.value)


@pytest.mark.parametrize(
    "texts",
    [
        ["名字很长的电影" * 3 + chr(0x4E00 + n) for n in range(60)],
        ["ann" + chr(97 + n % 26) * (n + 1) for n in range(60)],
    ],
)
def test_short_texts_and_texts_without_spaces_are_read_by_character(texts, tmp_path):
    (tmp_path / "names.tsv").write_text("".join(f"{text}\t{n % 3}a\n" for n, text in enumerate(texts)), "utf-8")
    _, plan = prepare_fit([tmp_path / "names.tsv"], minutes=0.1)
    assert plan.experiment.tokeniser.kind == "characters"


def test_long_texts_are_cut_and_long_sentences_with_tags_are_not(tmp_path):
    long = [(" ".join([text] * 200), label) for text, label in ROWS]
    (tmp_path / "long.csv").write_text(write_table([("text", "label"), *long]))
    files = [tmp_path / "long.csv"]
    recognition, plan = prepare_fit(files, minutes=0.1)
    assert plan.experiment.data.truncate
    assert plan.experiment.data.max_length + 2 <= plan.experiment.model.positions.max_length
    assert any("what comes after 512 words is not read" in line for line in describe(files, recognition, plan))
    (tmp_path / "long.conll").write_text(
        "".join(f"{word} X\n" for word in long[0][0].split()) + "".join(f"\na{n} Y\nb X\n" for n in range(20))
    )
    _, plan = prepare_fit([tmp_path / "long.conll"], minutes=0.1)
    assert not plan.experiment.data.truncate
    assert plan.experiment.data.max_length == 1400 < plan.experiment.model.positions.max_length


def test_quotes_that_are_text(tmp_path):
    rows = [(label, f'"{text}' if n % 7 == 0 else text) for n, (text, label) in enumerate(ROWS)]
    (tmp_path / "bars.txt").write_text("".join(f"{label}|{text}.\n" for label, text in rows))
    found = recognise([tmp_path / "bars.txt"])
    assert (found.shape, found.data["separator"], found.data["quoted"]) == ("labelled", "|", False)
    assert read_all(found)[0] == (f'"{TEXTS[0]}.', LABELS[0])


def test_quotes_that_are_not_doubled_are_named(tmp_path):
    texts = [f'the "best" film, of {n}' if n == 20 else f"a film, of {n}" for n in range(40)]
    (tmp_path / "prices.csv").write_text(
        "about,price\n" + "".join(f'"{text}",{n / 3}\n' for n, text in enumerate(texts))
    )
    with pytest.raises(UserError, match=r"prices\.csv, line 22: text between a closing quote .*double the quotes"):
        recognise([tmp_path / "prices.csv"])


def test_quotes_of_dialogue_are_no_mistake(tmp_path):
    line = '"Well," he said, "if you say so.\nI think {} not," she said, and left{}.\n'
    (tmp_path / "novel.txt").write_text("".join(line.format(n, ", smiling" * (n % 3)) for n in range(30)))
    assert recognise([tmp_path / "novel.txt"]).shape == "texts"


def test_a_header_without_rows_is_refused(tmp_path):
    (tmp_path / "rows.csv").write_text("text,label\n")
    with pytest.raises(UserError, match=r"names of columns \(text,label\) and no rows"):
        recognise([tmp_path / "rows.csv"])


def test_labels_that_are_lists_are_told(tmp_path):
    labels = [f"{label},{length}" for label in ("pos", "neg") for length in ("long", "short")] * 15
    (tmp_path / "rows.csv").write_text(write_table([("text", "labels"), *zip(TEXTS, labels, strict=True)]))
    assert any("looks like a list of labels" in warning for warning in recognise([tmp_path / "rows.csv"]).warnings)


def test_quotes_around_cells_are_no_text_where_one_is_not_doubled(tmp_path):
    texts = [f'the "best" film, of {n}' if n == 20 else f"a film, of {n}" for n in range(40)]
    (tmp_path / "rows.csv").write_text("".join(f'"{text}",{LABELS[n % 2]}\n' for n, text in enumerate(texts)))
    with pytest.raises(UserError, match=r"rows\.csv, line 21: text between a closing quote"):
        recognise([tmp_path / "rows.csv"])


@pytest.mark.parametrize("quote", ["", '"'])
def test_one_column_with_its_name(quote, tmp_path):
    lines = [f"{quote}{text}, they said.{quote}\n" for text in TEXTS]
    (tmp_path / "one.csv").write_text("text\n" + "".join(lines))
    found = recognise([tmp_path / "one.csv"])
    assert (found.shape, found.columns) == ("texts", ("text",))
    assert read_all(found)[0] == ("", f"{TEXTS[0]}, they said.")


def test_words_that_recur_are_pairs_in_the_order_of_the_file(tmp_path):
    rows = [(f"word {n % 9}", f"Wort {n % 9}") for n in range(90)]
    (tmp_path / "words.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in rows))
    found = recognise([tmp_path / "words.tsv"])
    assert (found.shape, found.columns) == ("pairs", (1, 2))


def test_few_sentences_in_a_column_called_category_are_labels(tmp_path):
    labels = [f"the writer of this review {'liked' if label == 'pos' else 'hated'} the film" for label in LABELS]
    (tmp_path / "rows.csv").write_text(write_table([("text", "category"), *zip(TEXTS, labels, strict=True)]))
    found = recognise([tmp_path / "rows.csv"])
    assert found.shape == "labelled" and any("looks like a sentence" in warning for warning in found.warnings)


def test_dates_and_users_are_no_targets_beside_others(tmp_path):
    rows = [(f"2020-01-{n % 9 + 1:02}", text, label, f"u{n % 9}") for n, (text, label) in enumerate(ROWS)]
    (tmp_path / "rows.csv").write_text(write_table([("date", "headline", "paper", "user_id"), *rows]))
    found = recognise([tmp_path / "rows.csv"])
    assert found.columns == ("headline", "paper")
    assert not any("may be the target" in warning for warning in found.warnings)


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ("".join(f"{label} {text} .\n" for text, label in ROWS), r"begins with one of 2 words \('pos', 'neg'\)"),
        ("<html>\n" + "<p>A film.</p>\n" * 60, "it has markup"),
    ],
)
def test_doubts_about_plain_text(text, warning, tmp_path):
    (tmp_path / "a.txt").write_text(text)
    (told,) = recognise([tmp_path / "a.txt"]).warnings
    assert re.search(warning, told)


def test_labels_that_may_be_missing_are_told(tmp_path):
    rows = [(text, "NULL" if n % 9 == 0 else label) for n, (text, label) in enumerate(ROWS)]
    (tmp_path / "rows.csv").write_text(write_table([("text", "label"), *rows]))
    assert any("'NULL' may mean that there is none" in told for told in recognise([tmp_path / "rows.csv"]).warnings)


def test_a_folder_as_an_archive_leaves_it(tmp_path):
    for n, (text, label) in enumerate(ROWS):
        (tmp_path / "data" / "aclImdb" / label).mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / "aclImdb" / label / f"{n}.txt").write_text(text)
    assert recognise([tmp_path / "data"]).shape == "labelled"


def test_damaged_images_are_left_out(tmp_path):
    for n in range(24):
        (tmp_path / "photos" / "ab"[n % 2]).mkdir(parents=True, exist_ok=True)
        image = Image.fromarray(np.full((8 + n % 3, 9, 3), 10 * n, np.uint8)).convert(("RGB", "L", "RGBA", "P")[n % 4])
        image.save(tmp_path / "photos" / "ab"[n % 2] / f"{n}.png")
    (tmp_path / "photos" / "a" / "broken.jpg").write_bytes(b"\xff\xd8\xff\xe0 no image")
    recognition, plan = prepare_fit([tmp_path / "photos"], minutes=0.1)
    assert any(line.startswith("24 images; held out") for line in describe([tmp_path / "photos"], recognition, plan))


def test_columns_of_a_table_without_a_header_have_numbers(tmp_path):
    (tmp_path / "rows.tsv").write_text("".join(f"{text}\t{label}\n" for text, label in ROWS))
    with pytest.raises(UserError, match="has no header; name its columns by their numbers, from 1 to 2"):
        recognise([tmp_path / "rows.tsv"], ["text", "label"])


@pytest.mark.parametrize("minutes", [0.0, -1.0, float("nan"), float("inf")])
def test_times_that_are_none_are_refused(minutes, tmp_path):
    (tmp_path / "rows.tsv").write_text("".join(f"{text}\t{label}\n" for text, label in ROWS))
    with pytest.raises(UserError, match=r"--minutes: .* is no time to train"):
        prepare_fit([tmp_path / "rows.tsv"], minutes=minutes)
