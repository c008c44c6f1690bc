"""What `headwise fit` refuses, each in one sentence that says what to do."""

import json
import os
import re
import subprocess
import zipfile
from pathlib import Path

import pytest
from film_reviews import LABELS, ROWS, TEXTS, WORDS, read_all, write_lines, write_table

from headwise.autofit.fit import prepare_fit
from headwise.autofit.recognise import recognise
from headwise.cli.main import main
from headwise.errors import UserError


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
        (
            "tagged.txt",
            "".join(f"{text.replace(' ', '/N ')}/N 1/2/NUM\n" for text in TEXTS),
            "tagged",
            [(f"{text} 1/2", " ".join(["N"] * len(text.split()) + ["NUM"])) for text in TEXTS],
        ),
        (
            "memory.tmx",
            '<?xml version="1.0"?>\n<tmx version="1.4">\n<body>\n'
            + "".join(
                f"<tu>\n<tuv><seg>{text}</seg></tuv>\n<tuv><seg>{text} too</seg></tuv>\n</tu>\n" for text in TEXTS
            )
            + "</body>\n</tmx>\n",
            "pairs",
            [(text, f"{text} too") for text in TEXTS],
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


def test_quotes_that_are_not_doubled_are_named(tmp_path):
    texts = [f'the "best" film, of {n}' if n == 20 else f"a film, of {n}" for n in range(40)]
    (tmp_path / "prices.csv").write_text(
        "about,price\n" + "".join(f'"{text}",{n / 3}\n' for n, text in enumerate(texts))
    )
    with pytest.raises(UserError, match=r"prices\.csv, line 22: text between a closing quote .*double the quotes"):
        recognise([tmp_path / "prices.csv"])


def test_a_header_without_rows_is_refused(tmp_path):
    (tmp_path / "rows.csv").write_text("text,label\n")
    with pytest.raises(UserError, match=r"names of columns \(text,label\) and no rows"):
        recognise([tmp_path / "rows.csv"])


def test_quotes_around_cells_are_no_text_where_one_is_not_doubled(tmp_path):
    texts = [f'the "best" film, of {n}' if n == 20 else f"a film, of {n}" for n in range(40)]
    (tmp_path / "rows.csv").write_text("".join(f'"{text}",{LABELS[n % 2]}\n' for n, text in enumerate(texts)))
    with pytest.raises(UserError, match=r"rows\.csv, line 21: text between a closing quote"):
        recognise([tmp_path / "rows.csv"])


def test_columns_of_a_table_without_a_header_have_numbers(tmp_path):
    (tmp_path / "rows.tsv").write_text("".join(f"{text}\t{label}\n" for text, label in ROWS))
    with pytest.raises(UserError, match="has no header; name its columns by their numbers, from 1 to 2"):
        recognise([tmp_path / "rows.tsv"], ["text", "label"])


@pytest.mark.parametrize("minutes", [0.0, -1.0, float("nan"), float("inf")])
def test_times_that_are_none_are_refused(minutes, tmp_path):
    (tmp_path / "rows.tsv").write_text("".join(f"{text}\t{label}\n" for text, label in ROWS))
    with pytest.raises(UserError, match=r"--minutes: .* is no time to train"):
        prepare_fit([tmp_path / "rows.tsv"], minutes=minutes)
