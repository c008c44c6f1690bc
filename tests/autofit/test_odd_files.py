"""What `headwise fit` says of files as strangers have them."""

import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from film_reviews import LABELS, ROWS, TEXTS, read_all, write_lines, write_table
from PIL import Image

from headwise.autofit.fit import describe, prepare_fit
from headwise.autofit.recognise import recognise
from headwise.data.config import DATA
from headwise.errors import UserError
from headwise.vision.corpora import load_images


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


def test_quotes_of_dialogue_are_no_mistake(tmp_path):
    line = '"Well," he said, "if you say so.\nI think {} not," she said, and left{}.\n'
    (tmp_path / "novel.txt").write_text("".join(line.format(n, ", smiling" * (n % 3)) for n in range(30)))
    assert recognise([tmp_path / "novel.txt"]).shape == "texts"


def test_labels_that_are_lists_are_told(tmp_path):
    labels = [f"{label},{length}" for label in ("pos", "neg") for length in ("long", "short")] * 15
    (tmp_path / "rows.csv").write_text(write_table([("text", "labels"), *zip(TEXTS, labels, strict=True)]))
    assert any("looks like a list of labels" in warning for warning in recognise([tmp_path / "rows.csv"]).warnings)


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


def test_utf_16_is_read_and_named(tmp_path):
    (tmp_path / "rows.csv").write_text(write_table([("text", "label"), *ROWS]), "utf-16")
    found = recognise([tmp_path / "rows.csv"])
    assert found.reason.endswith("; read as UTF-16, as its byte-order mark says") and read_all(found) == ROWS


@pytest.mark.parametrize(
    ("count", "line"),
    [
        (900, "held out: of 14,400 characters, 1,440 to validate and then 1,440 to test, at the end of the text"),
        (300, "held out: of 4,800 characters, 480 to validate, at the end of the text; no test part, as the text is"),
    ],
)
def test_one_text_has_a_test_part_or_the_line_says_why_not(count, line, tmp_path):
    lines = ["it goes on and o", "n, and then it\ne", "nds; so he said\n"]
    (tmp_path / "novel.txt").write_text("".join(lines[n % 3] for n in range(count)))
    recognition, plan = prepare_fit([tmp_path / "novel.txt"], minutes=0.1)
    (told,) = [told for told in describe([tmp_path / "novel.txt"], recognition, plan) if "held out" in told]
    assert told.startswith(line)
    assert plan.experiment.data.test_fraction == (0.1 if count == 900 else 0)


def test_few_texts_have_no_test_part(tmp_path):
    for n in range(4):
        (tmp_path / f"{n}.txt").write_text(f"a text of the number {n}. " * 40)
    recognition, plan = prepare_fit([tmp_path], minutes=0.1)
    assert "no test part, as 4 texts are few: scores are those of the validation part" in describe(
        [tmp_path], recognition, plan
    )


def test_a_data_set_of_splits_gives_the_run_its_name(tmp_path):
    for part in ("train", "validation", "test"):
        (tmp_path / "films" / part).mkdir(parents=True)
        rows = [(f"{text}, {part}", label) for text, label in ROWS]
        table = pa.table({"text": [text for text, _ in rows], "label": [label for _, label in rows]})
        with pa.ipc.new_stream(tmp_path / "films" / part / "data-00000-of-00001.arrow", table.schema) as file:
            file.write_table(table)
        (tmp_path / "films" / part / "state.json").write_text(
            json.dumps({"_data_files": [{"filename": "data-00000-of-00001.arrow"}]})
        )
    (tmp_path / "films" / "dataset_dict.json").write_text(json.dumps({"splits": ["train", "validation", "test"]}))
    recognition, plan = prepare_fit([tmp_path / "films"], minutes=0.1)
    assert plan.experiment.name == "films"
    assert "60 rows to train on; parts of their own: 60 to test and 60 to validate" in describe(
        [tmp_path / "films"], recognition, plan
    )


def test_a_language_is_checked_before_anything_is_read():
    with pytest.raises(UserError, match="--language: 'german' is no code of a language"):
        prepare_fit(["nowhere.csv"], language="german")
