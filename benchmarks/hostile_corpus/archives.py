"""Archives: bombs, names that leave the folder, links, lying sizes."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import json
import lzma
import stat
import tarfile
import zipfile
from collections.abc import Callable, Iterator

from hostile_corpus import Commands, Sandbox
from hostile_corpus.data import use

CONFIG = b"seed = 1\n"


def describe(content: bytes) -> dict[str, object]:
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def pack_archive(files: dict[str, bytes], mode: int = stat.S_IFREG | 0o644, run: str = "run") -> bytes:
    """An archive of a run with a manifest that fits."""
    listed = {name: describe(content) for name, content in files.items()}
    digest = hashlib.sha256(json.dumps(listed, sort_keys=True).encode()).hexdigest()
    manifest = json.dumps({"files": listed, "sha256": digest}, sort_keys=True, indent=1) + "\n"
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in {**files, "archive.json": manifest.encode()}.items():
            info = zipfile.ZipInfo(f"{run}/{name}")
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = mode << 16
            archive.writestr(info, content)
    return file.getvalue()


def truncate(content: bytes) -> bytes:
    return content[: len(content) // 2]


def lie(content: bytes, size: int, told: int) -> bytes:
    """Change the unpacked size that headers declare."""
    return content.replace(size.to_bytes(4, "little"), told.to_bytes(4, "little"))


RUNS: dict[str, Callable[[], bytes]] = {
    "empty": lambda: b"",
    "noise": lambda: bytes(range(256)) * 10,
    "leaves": lambda: pack_archive({"config.toml": CONFIG, "../../outside/x": b"x"}),
    "run leaves": lambda: pack_archive({"config.toml": CONFIG}, run=".."),
    "absolute": lambda: pack_archive({"config.toml": CONFIG}, run="/tmp"),
    "backslash": lambda: pack_archive({"config.toml": CONFIG, "data/..\\..\\x": b"x"}),
    "link": lambda: pack_archive({"config.toml": b"/etc/passwd"}, stat.S_IFLNK | 0o777),
    "device": lambda: pack_archive({"config.toml": CONFIG}, stat.S_IFCHR | 0o666),
    "setuid": lambda: pack_archive({"config.toml": CONFIG, "evil.sh": b"#!/bin/sh\n"}, stat.S_IFREG | 0o4777),
    "bomb": lambda: pack_archive({"config.toml": CONFIG, "data/a": bytes(2 * 10**8)}),
    "lying size": lambda: lie(pack_archive({"config.toml": CONFIG, "data/a": bytes(10**7 + 1)}), 10**7 + 1, 5),
    "truncated": lambda: truncate(pack_archive({"config.toml": CONFIG, "data/a": bytes(10**5)})),
    "100,000 files": lambda: pack_archive({"config.toml": CONFIG} | {f"data/{n}": b"" for n in range(20_000)}),
    "unknown file": lambda: pack_archive({"config.toml": CONFIG, "run.py": b"import os"}),
    "NUL in a name": lambda: pack_archive({"config.toml": CONFIG, "data/a\0b": b"x"}),
}
HARMLESS = ("100,000 files",)


def put_run(build: Callable[[], bytes]) -> Callable[[Sandbox], Commands]:
    def make(sandbox: Sandbox) -> Commands:
        return [["runs", "unpack", str(sandbox.write("run.zip", build()))]]

    return make


def put_run_tar(sandbox: Sandbox) -> Commands:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        link = tarfile.TarInfo("run/lib")
        link.type, link.linkname = tarfile.SYMTYPE, "../../outside"
        archive.addfile(link)
        info = tarfile.TarInfo("run/lib/evil")
        info.size = 1
        archive.addfile(info, io.BytesIO(b"x"))
    return [
        ["runs", "unpack", str(sandbox.write("run.zip", file.getvalue()))],
        *use(sandbox, "run.zip", "labelled-zip"),
    ]


MANY = b"a\tb\n" * 1_000_000
COMPRESSED: dict[str, Callable[[], bytes]] = {
    "one.tsv.gz": lambda: gzip.compress(bytes(3 * 10**8), 6),
    "one.tsv.bz2": lambda: bz2.compress(bytes(3 * 10**8), 1),
    "one.tsv.xz": lambda: lzma.compress(bytes(3 * 10**8), preset=0),
    "nested.tsv.gz": lambda: gzip.compress(gzip.compress(bytes(10**7))),
    "truncated.tsv.gz": lambda: truncate(gzip.compress(MANY)),
    "flipped.tsv.xz": lambda: lzma.compress(MANY[: 10**6])[:-40] + bytes(40),
    "lying.tsv.gz": lambda: b"not compressed\tat all\n" * 50,
    "dictionary.tsv.xz": lambda: lzma.compress(
        b"a\tb\n", format=lzma.FORMAT_XZ, filters=[{"id": lzma.FILTER_LZMA2, "dict_size": 1536 * 2**20}]
    ),
    "window.tsv.zst": lambda: b"\x28\xb5\x2f\xfd\x00\xb8" + bytes(64),
    "one.tsv.zst": lambda: compress_zstd(bytes(3 * 10**8)),
}


def compress_zstd(content: bytes) -> bytes:
    import pyarrow

    return bytes(pyarrow.compress(content, "zstd", asbytes=True))


def put_compressed(name: str, build: Callable[[], bytes]) -> Callable[[Sandbox], Commands]:
    def make(sandbox: Sandbox) -> Commands:
        sandbox.write(name, build())
        return use(sandbox, name, "tsv")

    return make


def pack_zip(members: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


ZIPS: dict[str, Callable[[], bytes]] = {
    "one line": lambda: pack_zip({"a.pos": bytes(3 * 10**8), "a.neg": b"x\n"}),
    "leaves": lambda: pack_zip({"../../outside/a.pos": b"x\n" * 20, "/tmp/a.neg": b"y\n" * 20}),
    "nested": lambda: pack_zip({"a.pos": pack_zip({"b.pos": b"x"}), "a.neg": b"x\n" * 20}),
    "lying size": lambda: lie(pack_zip({"a.pos": bytes(10**6 + 1)}), 10**6 + 1, 5),
    "truncated": lambda: truncate(pack_zip({"a.pos": b"x\n" * 10**5})),
    "labels with escapes": lambda: pack_zip({"a.\x1b[2J": b"x\n" * 20, "a.neg": b"y\n" * 20}),
}


def put_zip(build: Callable[[], bytes]) -> Callable[[Sandbox], Commands]:
    def make(sandbox: Sandbox) -> Commands:
        sandbox.write("texts.zip", build())
        return use(sandbox, "texts.zip", "labelled-zip")

    return make


def list_cases() -> Iterator[tuple[str, Callable[[Sandbox], Commands], bool]]:
    for name, build in RUNS.items():
        yield f"run {name}", put_run(build), name not in HARMLESS
    yield "tar with links", put_run_tar, True
    for name, build in COMPRESSED.items():
        yield name, put_compressed(name, build), name != "dictionary.tsv.xz"
    for name, build in ZIPS.items():
        yield f"labelled zip {name}", put_zip(build), name in ("one line", "truncated")
