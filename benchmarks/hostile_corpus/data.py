"""Texts and tables: every format of `[data]`."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable, Iterator

from hostile_corpus import Commands, Sandbox

DEEP = "[" * 60_000
LONG = "9" * 9999
EXPERIMENT = """
task = "{task}"
[data]
train = {file}
format = "{format}"
{more}
[model]
kind = "{model}"
[train]
steps = 1
batch_size = 4
threads = 1
samples = 0
"""
TASKS = {  # of a format -> task and model
    "conll": ("tag", "lstm"),
    "conllu": ("tag", "lstm"),
    "squad": ("answer", "bert-tiny"),
    "labelled-zip": ("classify", "lstm"),
    "labelled-folders": ("classify", "lstm"),
    "lines": ("language-model", "gpt2"),
}
TABLE = 'columns = ["a", "b"]'
BOMB = b"\1" * 40  # enough for suffixes


def use(sandbox: Sandbox, file: str, format: str, more: str = "") -> Commands:
    """Train on a file, and let `fit` recognise it."""
    task, model = TASKS.get(format, ("transduce", "transformer-tiny"))
    text = EXPERIMENT.format(task=task, file=json.dumps(file), format=format, model=model, more=more)
    sandbox.write("experiment.toml", text)
    return [["train", "experiment.toml"], ["fit", file, "--minutes", "0.01"]]


# name -> format, contents, further keys
TEXTS: dict[str, tuple[str, str | bytes, str]] = {
    "a.tsv of NUL": ("tsv", "\0\t\0\n" * 20, ""),
    "b.tsv without tabs": ("tsv", "x\n" * 20, ""),
    "c.tsv UTF-16": ("tsv", "a\tb\n".encode("utf-16-le") * 20, ""),
    "d.tsv of one line": ("tsv", "a" * 2**26 + "\tb\n", ""),
    "e.tsv lone surrogate": ("tsv", "a\ud800\tb\n" * 20, ""),
    "f.tsv of escapes": ("tsv", "\x1b[2J\x1b]0;x\x07\t\x9b31m\n" * 20, ""),
    "g.tsv of combining marks": ("tsv", "a" + "\u0301" * 100_000 + "\tb\n", ""),
    "h.csv open quote": ("csv", 'a,b\n"' + "x,y\n" * 20_000, TABLE),
    "i.csv of 100,000 columns": ("csv", "a,b" + "," * 10**5 + "\n" + "," * 10**5, TABLE),
    "j.csv huge field": ("csv", 'a,b\n"' + "x" * 2**20 + '",y\n', TABLE),
    "k.csv NUL": ("csv", "a,b\n\0,\0\n" * 20, TABLE),
    "l.csv of formulas": ("csv", "a,b\n=cmd|' /C calc'!A0,@SUM(1)\n" * 20, TABLE),
    "m.jsonl deep": ("jsonl", DEEP + "\n", TABLE),
    "n.jsonl deep value": ("jsonl", '{"a": ' + DEEP + "]" * 60_000 + ', "b": "x"}\n', TABLE),
    "o.jsonl long number": ("jsonl", '{"a": ' + LONG + ', "b": "x"}\n', TABLE),
    "p.jsonl surrogate": ("jsonl", '{"a": "\\ud800", "b": "x"}\n' * 20, TABLE),
    "q.jsonl of NaN": ("jsonl", '{"a": NaN, "b": Infinity}\n' * 20, TABLE),
    "r.jsonl duplicate keys": ("jsonl", "{" + '"a": "x", ' * 10_000 + '"b": "y"}\n', TABLE),
    "s.json deep": ("json", DEEP, TABLE),
    "t.json deep keys": ("json", '{"a":' * 60_000, TABLE),
    "u.json long number": ("json", '{"data": [{"a": ' + LONG + ', "b": "x"}]}', TABLE),
    "v.json endless text": ("json", '{"data": [{"a": "' + "x" * 2**25, TABLE),
    "w.conll one column": ("conll", "a\n" * 100, ""),
    "x.conll of a sentence without end": ("conll", "a B\n" * 50_000, ""),
    "y.conll numbers": ("conll", "a B\n", "columns = [1, 999999999]"),
    "z.conllu ids": ("conllu", "1" + "0" * 5000 + "\ta\ta\tX\t_\t_\t0\troot\t_\t_\n\n", 'column = "upos"'),
    "aa.conllu heads": ("conllu", "1\ta\ta\tX\t_\t_\t99999999999999\troot\t_\t_\n\n", 'column = "upos"'),
    "ab.conllu ranges": ("conllu", "1-999999999999\ta\ta\tX\t_\t_\t0\troot\t_\t_\n\n", 'column = "upos"'),
    "ac.json squad deep": ("squad", '{"data": ' + DEEP, ""),
    "ad.json squad types": ("squad", '{"data": [{"title": 5, "paragraphs": [{"context": 7, "qas": {}}]}]}', ""),
    "ae.json squad long number": ("squad", '{"version": ' + LONG + ', "data": []}', ""),
    "af.json squad surrogate": ("squad", json.dumps({"data": [{"title": "\ud800", "paragraphs": [
        {"context": "a \ud800 b", "qas": [{"id": "1", "question": "a?", "answers": [{"text": "b", "answer_start": 4}]}]}
    ]}]}), ""),
    "ag.parquet empty": ("parquet", b"", TABLE),
    "ah.parquet magic": ("parquet", b"PAR1" + bytes(64) + struct.pack("<I", 2**32 - 1) + b"PAR1", TABLE),
    "ai.parquet noise": ("parquet", b"PAR1" + bytes(range(256)) * 8 + struct.pack("<I", 2000) + b"PAR1", TABLE),
    "aj.arrow magic": ("arrow", b"ARROW1\0\0" + bytes(64) + struct.pack("<i", 2**31 - 1) + b"ARROW1", TABLE),
    "ak.arrow stream": ("arrow", struct.pack("<Ii", 0xFFFFFFFF, 2**31 - 1) + bytes(64), TABLE),
    "al.txt of one word": ("lines", "a" * 2**20, ""),
    "am.txt of zeros": ("lines", bytes(2**20), ""),
    "an.pkl pickle": ("tsv", b"\x80\x04c__builtin__\neval\n(S'1'\ntR.", ""),
}  # fmt: skip


def put(name: str, format: str, content: str | bytes, more: str) -> Callable[[Sandbox], Commands]:
    def make(sandbox: Sandbox) -> Commands:
        file = name.split(" ")[0]
        sandbox.write(file, content)
        return use(sandbox, file, format, more)

    return make


def put_special(how: str) -> Callable[[Sandbox], Commands]:
    def make(sandbox: Sandbox) -> Commands:
        path = sandbox.work / "data.tsv"
        if how == "FIFO":
            os.mkfifo(path)
        elif how == "device":
            path.symlink_to("/dev/zero")
        elif how == "loop":
            path.symlink_to(path.name)
        else:
            path.symlink_to("/proc/self/mem")
        run = str(sandbox.base / "pairs-run")
        return [*use(sandbox, "data.tsv", "tsv"), ["evaluate", run, "--data", "data.tsv"]]

    return make


def put_folder(how: str) -> Callable[[Sandbox], Commands]:
    """A folder of texts by label that leads elsewhere."""

    def make(sandbox: Sandbox) -> Commands:
        for label in ("pos", "neg"):
            sandbox.write(f"texts/{label}/1.txt", "good\n")
        folder = sandbox.work / "texts" / "pos"
        if how == "loop":
            (folder / "again").symlink_to(sandbox.work / "texts")
        elif how == "FIFO":
            os.mkfifo(folder / "2.txt")
        else:
            for number in range(150):
                folder = folder / f"d{number % 10}"
            folder.mkdir(parents=True)
        return use(sandbox, "texts", "labelled-folders")

    return make


def put_dataset(state: str) -> Callable[[Sandbox], Commands]:
    """A folder of `datasets` whose files are elsewhere."""

    def make(sandbox: Sandbox) -> Commands:
        sandbox.write("saved/state.json", state)
        sandbox.write("saved/dataset_info.json", DEEP)
        return use(sandbox, "saved", "arrow", TABLE)

    return make


SETTINGS = {
    "huge max_length": "max_length = 1000000000000000",
    "empty column": 'columns = ["", ""]',
    "separator": 'separator = "\\u0000"',
    "valid_fraction": "valid_fraction = 1e308",
    "cache in a device": 'cache = "/dev/null/x"',
    "prefix": f'prefix = "{"x" * 100_000}"',
}


def list_cases() -> Iterator[tuple[str, Callable[[Sandbox], Commands], bool]]:
    for name, (format, content, more) in TEXTS.items():
        yield name, put(name, format, content, more), False
    for how in ("FIFO", "device", "loop", "memory"):
        yield f"data.tsv {how}", put_special(how), True
    for how in ("loop", "FIFO", "deep folders"):
        yield f"labelled folders {how}", put_folder(how), False
    for name, state in {
        "outside": '{"_data_files": [{"filename": "../../outside/victim"}]}',
        "device": '{"_data_files": [{"filename": "/dev/zero"}]}',
        "deep": DEEP,
        "types": '{"_data_files": 5}',
        "names": '{"_data_files": [{"filename": 7}, {"filename": "a\\u0000b"}]}',
    }.items():
        yield f"dataset {name}", put_dataset(state), True
    for name, more in SETTINGS.items():
        yield f"settings {name}", put("pairs.tsv", "tsv", "a\tb\n" * 20, more), False
