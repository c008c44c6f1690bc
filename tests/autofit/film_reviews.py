"""Rows of the tests of odd files, and how they are written and read."""

import csv
import io
import json

from headwise.data.config import DATA
from headwise.data.corpora import open_training_pairs

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
