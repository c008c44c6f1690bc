"""The format of a file by its name, for files that no experiment describes."""

from __future__ import annotations

from pathlib import Path

from headwise.data.compression import strip_suffix
from headwise.data.config import TABLES, TextDataConfig

SUFFIXES: dict[str, tuple[str, ...]] = {  # of the files of a format, plain or compressed; a folder stands for them
    "csv": (".csv",),
    "tsv": (".tsv", ".tab"),
    "jsonl": (".jsonl", ".ndjson"),
    "parquet": (".parquet", ".pq"),
    "arrow": (".arrow", ".feather", ".ipc"),
    "conll": (".conll", ".bio", ".iob", ".iob2"),
    "conllu": (".conllu",),
    "conllu-trees": (".conllu",),
    "conllu-brackets": (".conllu",),
    "labelled-zip": (".zip",),
    "squad": (".json",),
    "json": (".json",),  # without an experiment that says so, SQuAD's
    "dictionary": (".dict",),
}
FOLDERS: dict[str, tuple[str, ...]] = {  # of the files in the folders of a format, which they do not name
    "labelled-folders": (".txt", ".text", ".md"),
}


def guess_format(path: Path) -> str:
    """The format that a file's suffix names, or a folder of `datasets`; empty if it names none.

    >>> guess_format(Path("reviews.csv.gz")), guess_format(Path("book.txt"))
    ('csv', '')
    """
    if (path / "state.json").is_file() or (path / "dataset_dict.json").is_file():
        return "arrow"
    name = strip_suffix(path.name).lower()
    return next((format for format, suffixes in SUFFIXES.items() if name.endswith(suffixes)), "")


def choose_format(path: Path, data: TextDataConfig, unpaired: bool) -> TextDataConfig:
    """The settings to read other data for a run: the format that the name says, or that of the run's data, or TSV;
    for tasks on texts without sources (`unpaired`) a table only if the run's data are one."""
    if strip_suffix(path.name).lower().endswith(SUFFIXES.get(data.format, ())):
        return data
    guess = guess_format(path)
    if unpaired:
        format = guess if guess in TABLES and data.format in TABLES else data.format if data.unpaired else "text"
    else:
        format = guess or (data.format if data.format in TABLES else "tsv")
    if format == data.format:
        return data
    columns = data.columns if format in TABLES and data.format in TABLES else ()
    group = data.group if columns else ""
    return data.replace(
        format=format, columns=columns, group=group, separator="", quoted=True, header="auto", reverse=False, prefix=""
    )
