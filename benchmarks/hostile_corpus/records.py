"""Logs of episodes and records of comparisons."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from typing import Any

from hostile_corpus import Commands, Sandbox
from hostile_corpus.weights import HEADERS

DEEP = "[" * 60_000
TABLE = """
name = "table"
seeds = [1]
[experiment]
task = "transduce"
model = "transformer-tiny"
[experiment.data]
train = "pairs.tsv"
[budget]
steps = 1
[[arm]]
name = "a"
"""
EXPERIMENT = """
task = "act"
[data]
train = "log"
[model]
kind = "decision-transformer-tiny"
[train]
steps = 1
threads = 1
"""


def use(sandbox: Sandbox) -> Commands:
    sandbox.write("experiment.toml", EXPERIMENT)
    return [["train", "experiment.toml"]]


def change_manifest(**changes: Any) -> Callable[[Sandbox], Commands]:
    def make(sandbox: Sandbox) -> Commands:
        log = sandbox.copy("log")
        file = log / "manifest.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | changes))
        return use(sandbox)

    return make


def put_manifest(content: str) -> Callable[[Sandbox], Commands]:
    def make(sandbox: Sandbox) -> Commands:
        (sandbox.copy("log") / "manifest.json").write_text(content)
        return use(sandbox)

    return make


def put_shard(content: bytes) -> Callable[[Sandbox], Commands]:
    """A file of episodes with the SHA-256 that the manifest says."""

    def make(sandbox: Sandbox) -> Commands:
        log = sandbox.copy("log")
        data = json.loads((log / "manifest.json").read_text())
        (name,) = data["files"]
        (log / name).write_bytes(content)
        data["files"][name] = hashlib.sha256(content).hexdigest()
        (log / "manifest.json").write_text(json.dumps(data))
        return use(sandbox)

    return make


def put_records(content: str) -> Callable[[Sandbox], Commands]:
    def make(sandbox: Sandbox) -> Commands:
        sandbox.copy("pairs.tsv")
        sandbox.write("records.json", content)
        sandbox.write("table.toml", TABLE.replace('name = "table"', 'name = "table"\nrecords = "records.json"', 1))
        return [["compare", "table.toml", "--dry-run"]]

    return make


def put_table(content: str) -> Callable[[Sandbox], Commands]:
    def make(sandbox: Sandbox) -> Commands:
        sandbox.copy("pairs.tsv")
        sandbox.write("table.toml", content)
        return [["compare", "table.toml", "--dry-run"], ["scaling", "table.toml", "--dry-run"]]

    return make


ENTRY = {"run": "a-1", "key": "x", "set": {}, "measured": {}, "outcome": {}}
RECORDS = {
    "deep": DEEP,
    "list": "[]",
    "format": '{"format": "x"}',
    "long number": '{"format": ' + "9" * 9999 + "}",
    "runs of numbers": '{"format": 1, "experiment": {}, "runs": [1, 2]}',
    "outcome empty": json.dumps({"format": 1, "experiment": {}, "runs": [ENTRY]}),
    "outcome of lists": json.dumps({"format": 1, "experiment": 5, "runs": [ENTRY | {"outcome": []}]}),
}
TABLES = {
    "name outside": TABLE.replace('"table"', '"../../outside/x"', 1),
    "arm outside": TABLE.replace('name = "a"', 'name = "../../outside/x"'),
    "records device": TABLE.replace("seeds = [1]", 'seeds = [1]\nrecords = "/dev/zero"'),
    "seeds": TABLE.replace("[1]", "[" + "9" * 400 + "]"),
    "start from": TABLE.replace("[experiment]", '[experiment]\ninit_from = "../../outside"'),
}


def list_cases() -> Iterator[tuple[str, Callable[[Sandbox], Commands], bool]]:
    for name, changes in {
        "outside": {"files": {"../../outside/victim": "x"}},
        "absolute": {"files": {"/dev/zero": "x"}},
        "files list": {"files": ["a"]},
        "huge shape": {"spaces": {"shape": [2**40, 2**40], "actions": 4, "discrete": True, "low": [], "high": []}},
        "actions": {"spaces": {"shape": [217], "actions": 10**12, "discrete": True, "low": [], "high": []}},
        "negative shape": {"spaces": {"shape": [-5], "actions": -4, "discrete": True, "low": [], "high": []}},
        "lengths": {"lengths": [10**12, 1, 1]},
        "returns": {"returns": [float("nan")] * 3},
        "returns of text": {"returns": ["x"]},
        "environment": {"environment": "os:system"},
        "environment module": {"environment": "antigravity:Evil-v0"},
        "settings": {"settings": {"observe": "x" * 10_000, "size": 10**9}},
    }.items():
        yield (
            f"log {name}",
            change_manifest(**changes),
            name not in ("returns", "settings", "environment", "environment module"),
        )
    for name, content in {"deep": DEEP, "list": "[]", "long number": '{"seed": ' + "9" * 9999 + "}"}.items():
        yield f"log manifest {name}", put_manifest(content), True
    for name in (
        "empty",
        "size beyond the file",
        "huge shape",
        "offsets beyond the file",
        "duplicate keys",
        "deep JSON",
    ):
        yield f"log shard {name}", put_shard(HEADERS[name]), True
    for name, content in RECORDS.items():
        yield f"records {name}", put_records(content), True
    for name, content in TABLES.items():
        yield f"table {name}", put_table(content), name not in ("arm outside", "start from")
