"""Run folders that training did not write."""

from __future__ import annotations

import hashlib
import json
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

from hostile_corpus import Commands, Sandbox

DEEP = "[" * 60_000
STATE = "checkpoints/step-2/state.json"
MANIFEST = "checkpoints/step-2/manifest.json"
WEIGHTS = "checkpoints/step-2/model.safetensors"
CONTENTS: list[tuple[str, str, str | bytes]] = [
    ("info.json", "number for text", '{"created": 12345}'),
    ("info.json", "deep", DEEP),
    ("info.json", "list", "[1]"),
    ("info.json", "lone surrogate", '{"created": "\\ud800"}'),
    ("info.json", "long number", '{"created": ' + "9" * 9999 + "}"),
    ("info.json", "bytes", b"\xff\xfe\x00"),
    ("config.toml", "deep", f"a = {DEEP}"),
    ("config.toml", "deep keys", ".".join("a" * 30_000) + " = 1"),
    ("config.toml", "deep tables", "[" + ".".join("a" * 30_000) + "]\nb = 1"),
    ("config.toml", "types", 'train = "fast"\ntask = 5\nmodel = [1]\ntuning = 3'),
    ("config.toml", "long number", "seed = " + "9" * 9999),
    ("config.toml", "empty", ""),
    ("config.toml", "NUL", "seed = 1\0"),
    ("metrics.jsonl", "deep", DEEP + "\n"),
    ("metrics.jsonl", "huge numbers", '{"step": 1' + "0" * 400 + ', "loss": 1e999, "nll": -1e308}\n' * 9),
    ("metrics.jsonl", "types", '{"loss": [1]}\n{"valid": 3}\n{"samples": "a"}\n{"valid": {"nll": "x"}}\n'),
    (STATE, "deep", DEEP),
    (STATE, "text", '{"step": "abc"}'),
    (STATE, "huge", '{"step": 1' + "0" * 300 + "}"),
    (MANIFEST, "empty", '{"files": {}}'),
    (MANIFEST, "deep", DEEP),
    ("tokenizer.json", "deep", DEEP),
    ("tokenizer.json", "list", "[]"),
    ("tokenizer.json", "surrogate", '{"source": {"kind": "characters", "vocabulary": ["\\ud800"]}}'),
    ("data.json", "deep", DEEP),
    ("data.json", "absolute", '{"folder": "/etc", "files": {"../../etc/passwd": [1, 2, "x"]}}'),
    ("best", "long number", "step-" + "9" * 9999),
    ("best", "leaves the folder", "step-../../outside"),
    ("last", "bytes", b"\xff"),
]
SPOILED = ("info.json", "config.toml", "metrics.jsonl", STATE, MANIFEST, WEIGHTS, "tokenizer.json", "data.json", "lock")


def use(sandbox: Sandbox, run: Path) -> Commands:
    """Everything that reads a run."""
    return [
        ["runs", str(sandbox.work), "--compare"],
        ["translate", str(run), "abc"],
        ["train", "--resume", str(run), "--steps", "1"],
        ["runs", "archive", str(run), "run.zip"],
    ]


def spoil(name: str, content: str | bytes) -> Callable[[Sandbox], Commands]:
    def make(sandbox: Sandbox) -> Commands:
        run = sandbox.copy("pairs-run")
        sandbox.write(f"pairs-run/{name}", content)
        return use(sandbox, run)

    return make


def replace_by(name: str, how: str) -> Callable[[Sandbox], Commands]:
    """A file of a run that is no regular file."""

    def make(sandbox: Sandbox) -> Commands:
        run = sandbox.copy("pairs-run")
        path = run / name
        path.unlink(missing_ok=True)
        if how == "FIFO":
            os.mkfifo(path)
        elif how == "device":
            path.symlink_to("/dev/zero")
        elif how == "folder":
            path.mkdir()
        elif how == "loop":
            path.symlink_to(path.name)
        else:
            with socket.socket(socket.AF_UNIX) as server:
                here = os.open(".", os.O_RDONLY)
                os.chdir(path.parent)
                server.bind(path.name)
                os.fchdir(here)
                os.close(here)
        return use(sandbox, run)

    return make


def link(name: str, hard: bool) -> Callable[[Sandbox], Commands]:
    """A file that training writes is a link to one outside."""

    def make(sandbox: Sandbox) -> Commands:
        run = sandbox.copy("pairs-run")
        path = run / name
        path.unlink(missing_ok=True)
        (os.link if hard else os.symlink)(sandbox.outside / "victim", path)
        return [["train", "--resume", str(run), "--steps", "1"], ["runs", "copy", str(run), "copied"]]

    return make


def link_checkpoints(sandbox: Sandbox) -> Commands:
    run = sandbox.copy("pairs-run")
    os.rename(run / "checkpoints", sandbox.outside / "checkpoints")
    (run / "checkpoints").symlink_to(sandbox.outside / "checkpoints")
    return [["train", "--resume", str(run), "--steps", "1"], ["runs", "remove", str(run), "--yes"]]


def keep_parts(sandbox: Sandbox) -> Commands:
    """A run whose parts file would execute code, with a valid manifest; nobody trusts it."""
    run = sandbox.copy("pairs-run")
    source = f"open({str(sandbox.canary)!r}, 'w')\n"
    sandbox.write("pairs-run/parts/evil.py", source)
    seal(run / "parts")
    return use(sandbox, run)[1:3]


def leave_by_parts(sandbox: Sandbox) -> Commands:
    run = sandbox.copy("pairs-run")
    sandbox.write("outside.py", f"open({str(sandbox.canary)!r}, 'w')\n")
    (run / "parts").mkdir()
    files = {"../../outside.py": describe(sandbox.work / "outside.py")}
    write_manifest(run / "parts" / "manifest.json", files)
    return [["translate", str(run), "abc", "--trust"]]


def change(name: str, old: bytes, new: bytes) -> Callable[[Sandbox], Commands]:
    """A file that stays valid and says something else."""

    def make(sandbox: Sandbox) -> Commands:
        run = sandbox.copy("pairs-run")
        content = (run / name).read_bytes()
        assert old in content
        (run / name).write_bytes(content.replace(old, new))
        return [["translate", str(run), "abc"], ["train", "--resume", str(run), "--steps", "1"]]

    return make


def seal_state(content: str) -> Callable[[Sandbox], Commands]:
    """A state with a manifest that fits."""

    def make(sandbox: Sandbox) -> Commands:
        run = sandbox.copy("pairs-run")
        sandbox.write(f"pairs-run/{STATE}", content)
        seal(run / "checkpoints" / "step-2")
        return [["train", "--resume", str(run), "--steps", "1"]]

    return make


def seal_weights(content: bytes) -> Callable[[Sandbox], Commands]:
    def make(sandbox: Sandbox) -> Commands:
        run = sandbox.copy("pairs-run")
        sandbox.write(f"pairs-run/{WEIGHTS}", content)
        seal(run / "checkpoints" / "step-2")
        return use(sandbox, run)[1:3]

    return make


def describe(path: Path) -> dict[str, object]:
    content = path.read_bytes()
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def seal(folder: Path) -> None:
    """A manifest of what is in a folder."""
    files = {path.name: describe(path) for path in sorted(folder.iterdir()) if path.name != "manifest.json"}
    write_manifest(folder / "manifest.json", files)


def write_manifest(path: Path, files: dict[str, dict[str, object]]) -> None:
    digest = hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()
    path.write_text(json.dumps({"files": files, "sha256": digest}, sort_keys=True, indent=1) + "\n")


def list_cases() -> Iterator[tuple[str, Callable[[Sandbox], Commands], bool]]:
    for name, what, content in CONTENTS:
        yield f"{Path(name).name} {what}", spoil(name, content), False
    for number, name in enumerate(SPOILED):
        for how in ("FIFO", "device", "folder", "loop", "socket")[number % 2 :: 2]:
            yield f"{Path(name).name} {how}", replace_by(name, how), False
    for name in ("lock", "metrics.jsonl", "best", "last", ".tmp-last", "config.toml"):
        yield f"{name} symbolic link", link(name, False), False
    for name in ("lock", "metrics.jsonl"):
        yield f"{name} hard link", link(name, True), False
    yield "checkpoints link", link_checkpoints, False
    yield "parts untrusted", keep_parts, False
    yield "parts outside", leave_by_parts, True
    yield "tokenizer.json another token", change("tokenizer.json", b'"a"', b'"q"'), True
    yield "config.toml another setting", change("config.toml", b'kind = "post"', b'kind = "pre"'), True
    for state in ('{"step": 2, "rng": 5}', '{"step": 2}', '{"step": 1e9}', '{"step": 2, "epoch": -5, "index": -7}'):
        yield f"sealed state {state}", seal_state(state), state != '{"step": 2}'
    yield "sealed pickle as weights", seal_weights(b"\x80\x04cos\nsystem\n(S'true'\ntR."), True
    yield "sealed empty weights", seal_weights(b""), True
    yield "sealed huge header", seal_weights((2**62).to_bytes(8, "little") + b"{}"), True
