"""Tables of texts and labels with named columns, as GLUE has them: one text or two, and what is to be told of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from headwise.data.lines import read_lines
from headwise.errors import UserError, nearest
from headwise.text.paired import BETWEEN

Columns = Sequence[str | int]


def read_table(path: Path, columns: Columns) -> Iterator[tuple[int, str, str]]:
    """(line number, texts, label) of each line; several texts have a tab between them.

    Columns are called by the names in the first line, or counted from 1 in a file without such a line. The last one
    is the label. Quotes are part of the text.
    """
    lines = read_lines(path)
    if named := [column for column in columns if isinstance(column, str)]:
        if len(named) < len(columns):
            raise UserError("data.columns: call all columns by their names, or count all of them")
        _, line = next(lines, (1, ""))
        header = line.split("\t")
        places = [_place(path, header, name) for name in named]
    else:
        places = [int(column) - 1 for column in columns]
    for number, line in lines:
        if not line.strip():
            continue
        cells = line.split("\t")
        if len(cells) <= max(places):
            raise UserError(f"{path}, line {number}: has {len(cells)} columns; column {max(places) + 1} is asked for")
        *texts, label = (cells[place].strip() for place in places)
        if not all(texts):
            raise UserError(f"{path}, line {number}: a text is empty; fill it in or remove the line")
        yield number, BETWEEN.join(texts), label


def _place(path: Path, header: list[str], name: str) -> int:
    if name not in header:
        raise UserError(f"{path}, line 1: there is no column '{name}'; {nearest(name, header)}")
    return header.index(name)


# The tasks of GLUE (Wang et al. 2019): folder, columns with the label last, files to train and to validate on.
# The labels of its test files are secret, so the validation part is what is scored.
GLUE: dict[str, tuple[str, Columns, str]] = {
    "cola": ("CoLA", (4, 2), "dev"),
    "sst-2": ("SST-2", ("sentence", "label"), "dev"),
    "mrpc": ("MRPC", ("#1 String", "#2 String", "Quality"), "dev"),
    "sts-b": ("STS-B", ("sentence1", "sentence2", "score"), "dev"),
    "qqp": ("QQP", ("question1", "question2", "is_duplicate"), "dev"),
    "mnli": ("MNLI", ("sentence1", "sentence2", "gold_label"), "dev_matched"),
    "qnli": ("QNLI", ("question", "sentence", "label"), "dev"),
    "rte": ("RTE", ("sentence1", "sentence2", "label"), "dev"),
    "wnli": ("WNLI", ("sentence1", "sentence2", "label"), "dev"),
}
