"""Tables as people have them: dates, users, remarks, several labels, a word a row, lists of texts."""

import json
import subprocess
import zipfile

import pytest
from film_reviews import LABELS, ROWS, TEXTS, read_all, write_lines, write_table

from headwise.autofit.columns import Column
from headwise.autofit.recognise import recognise
from headwise.errors import UserError


@pytest.fixture
def recognise_text(tmp_path):
    def recognise_text(content, name="rows.csv"):
        (tmp_path / name).write_text(content)
        return recognise([tmp_path / name])

    return recognise_text


@pytest.mark.parametrize(
    "value",
    ["2026-11-19", "19.11.2026 10:05", "Mon Apr 06 22:19:45 PDT 2009", "09 13, 2009", "2026-11-19T10:05:00.5+01:00",
     "November 19, 2026", "19-Nov-26", "11/19/2026 9:05 PM"],
)  # fmt: skip
def test_dates_are_no_targets(value, recognise_text):
    assert Column("when", [value] * 3 + [value.replace("19", "18")]).role == "date"
    found = recognise_text(write_table([("when", "text"), *((value, text) for text in TEXTS)]))
    assert (found.shape, found.columns) == ("texts", ("text",))


def test_the_lines_of_a_log_are_no_table(recognise_text):
    found = recognise_text(
        "".join(f"2026-11-19 10:05:{n % 60:02},123 INFO request {n} took {n} ms\n" for n in range(90))
    )
    assert found.shape == "texts" and not found.warnings


def test_tweets_with_users_and_dates(recognise_text):
    rows = [(4 * (label == "pos"), 1467810369 + 17 * n, f"Mon Apr 06 22:19:{n:02} PDT 2009", f"user{n % 40}", text)
            for n, (text, label) in enumerate(ROWS)]  # fmt: skip
    assert recognise_text(write_table(rows)).columns == (5, 1)


def test_columns_that_a_spreadsheet_has_added(recognise_text):
    found = recognise_text(write_table([("v1", "v2", "", ""), *((label, text, "", "") for text, label in ROWS)]))
    assert found.columns == ("v2", "v1") and read_all(found) == ROWS
    assert "if it is data: --columns 1 2" in found.warnings[0].partition(" 3")[0]


def test_pairs_with_a_remark_and_preferred_answers(recognise_text):
    found = recognise_text("".join(f"{text}\t{text.upper()}\tby user {n} of it\n" for n, text in enumerate(TEXTS)))
    assert (found.shape, found.columns) == ("pairs", (1, 2)) and "not read (3)" in found.warnings[0]
    rows = [{"prompt": text, "chosen": f"{text} too", "rejected": f"{text} not"} for text in TEXTS]
    assert recognise_text(write_lines(rows)).columns == ("prompt", "chosen")


def test_several_labels_of_a_text_are_told(recognise_text):
    flags = [(text, n % 2, n // 2 % 2, n // 4 % 2) for n, text in enumerate(TEXTS)]
    (warning, *_) = recognise_text(write_table([("text", "toxic", "rude", "odd"), *flags])).warnings
    assert "3 columns have 0 or 1 (toxic, rude, odd)" in warning and "--columns text toxic" in warning
    genres = ["drama", "comedy", "drama|comedy", "comedy|horror", "drama|horror"]
    rows = [(text, genres[n % 5]) for n, text in enumerate(TEXTS)]
    assert "looks like a list of labels" in recognise_text(write_table([("text", "label"), *rows])).warnings[0]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (
            write_table([("Sentence #", "Word", "POS", "Tag"), *(
                (f"Sentence: {n}" if not k else "", word, "NN", "O" if k else "B-X")
                for n, text in enumerate(TEXTS) for k, word in enumerate(text.split())
            )]),
            "has one word a row .Sentence #, Word, POS.; write 'Word', a tab and ",
        ),
        (
            write_lines([{"text": text, "label": [[0, 3, "DET"]]} for text in TEXTS]),
            "column 'label' has spans of characters",
        ),
        (json.dumps({"a": {"text": "x"}, "b": {"text": "y"}, "c": {"text": "z"}}), "one a line: jq -c"),
        (write_table([("a", "b"), *((n, n * 0.5) for n in range(30))]), "numbers alone are not learnt from"),
    ],
)  # fmt: skip
def test_refusals_of_tables(content, sentence, recognise_text):
    with pytest.raises(UserError, match=sentence):
        recognise_text(content)


def test_the_commands_for_lists_of_texts_and_subtitles(recognise_text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tags = enumerate(LABELS[:2])
    intents = [{"tag": tag, "patterns": TEXTS[n:40:2], "responses": ["well then"]} for n, tag in tags]
    with pytest.raises(UserError, match="write a row for each: ") as refusal:
        recognise_text(json.dumps({"intents": intents}), "intents.json")
    assert """'.. | objects | select(has("patterns")) | {text: .patterns[], label: .tag}'""" in str(refusal.value)
    times = "".join(
        f"{n}\r\n00:00:{n:02},000 --> 00:00:{n:02},900\r\n<i>{text}</i>\r\n\r\n" for n, text in enumerate(TEXTS[:50])
    )
    with pytest.raises(UserError, match="has subtitles; write their lines") as refusal:
        recognise_text(times, "film.srt")
    subprocess.run(str(refusal.value).partition("times: ")[2].replace(str(tmp_path), "."), shell=True, check=True)
    assert (tmp_path / "film.txt").read_bytes().decode().split("\r\n")[:3] == [TEXTS[0], "", TEXTS[1]]


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        (["README", "Corpus.de-en.de", "Corpus.de-en.en", "Corpus.xml"], "Corpus.de-en.de in it.; unpack it: unzip"),
        (["mimetype", "content.xml"], "is an OpenDocument file"),
        (["mimetype", "META-INF/container.xml", "OEBPS/1.xhtml"], "is an e-book"),
    ],
)
def test_archives_of_other_programs(names, sentence, tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for name in names:
            archive.writestr(name, "text\n")
    with pytest.raises(UserError, match=sentence):
        recognise([tmp_path / "a.zip"])


def test_names_of_molecules_are_texts(recognise_text):
    rows = [("smiles", "logp"), *((f"C{'C' * (n % 7)}(=O)N{n}", n * 0.37) for n in range(40))]
    assert (found := recognise_text(write_table(rows))).shape == "numbers" and found.columns == ("smiles", "logp")


def test_words_with_numbers_are_no_dates():
    assert Column("word", [f"word {n}" for n in range(9)]).role == "text"
    assert Column("version", ["1.2.3", "1.10.2", "v2"]).role != "date"
