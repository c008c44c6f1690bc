"""Images with lying sizes, bombs, and lists of images that lead elsewhere."""

from __future__ import annotations

import io
import json
import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator

import numpy as np
from PIL import Image

from hostile_corpus import Commands, Sandbox
from hostile_corpus.weights import Payload

DEEP = "[" * 60_000
EXPERIMENT = """
task = "{task}"
[data]
train = {files}
format = "{format}"
{more}
[model]
kind = "{model}"
[train]
steps = 1
batch_size = 2
threads = 1
samples = 0
"""


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def pack_png(width: int, height: int, data: bytes | None = None, *chunks: bytes) -> bytes:
    """A PNG whose header says so."""
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    body = zlib.compress(bytes(height * (width + 1))) if data is None else data
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + b"".join(chunks) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def pack_jpeg(width: int, height: int) -> bytes:
    file = io.BytesIO()
    Image.new("L", (8, 8)).save(file, "JPEG")
    content = bytearray(file.getvalue())
    place = content.index(b"\xff\xc0") + 5
    content[place : place + 4] = struct.pack(">HH", height, width)
    return bytes(content)


FILES: dict[str, bytes] = {
    "empty.png": b"",
    "noise.png": bytes(range(256)) * 40,
    "1x400.png": pack_png(1, 400),
    "1x80000000.png": pack_png(1, 80_000_000, zlib.compress(bytes(160_000_000))),
    "0x0.png": pack_png(0, 0, zlib.compress(b"")),
    "huge.png": pack_png(2**31 - 1, 2**31 - 1, zlib.compress(bytes(100))),
    "bomb.png": pack_png(30_000, 30_000, zlib.compress(bytes(30_001 * 30_000 // 4))),
    "large.png": pack_png(9000, 9000, zlib.compress(bytes(9001 * 9000))),
    "truncated.png": pack_png(100, 100)[:60],
    "short.png": pack_png(100, 100, zlib.compress(b"\0")),
    "text-bomb.png": pack_png(8, 8, None, *[chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(10**8)))] * 4),
    "profile-bomb.png": pack_png(8, 8, None, chunk(b"iCCP", b"a\0\0" + zlib.compress(bytes(10**8)))),
    "lying.jpg": pack_jpeg(65_000, 65_000),
    "small.jpg": pack_jpeg(8, 8)[:-20],
    "code.eps": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n(canary) (w) file closefile\n",
    "named.png": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\nshowpage\n",
    "vector.svg": b'<svg xmlns="http://www.w3.org/2000/svg"><image href="file:///etc/passwd"/></svg>',
    "lying.bmp": b"BM" + struct.pack("<IHHIIiiHHIIiiII", 70, 0, 0, 54, 40, 2**30, 2**30, 1, 24, 0, 0, 0, 0, 0, 0),
    "lying.gif": b"GIF89a" + struct.pack("<HHBBB", 65535, 65535, 0x80, 0, 0) + bytes(6) + b",",
    "loop.tif": b"II*\0\x08\0\0\0" + struct.pack("<H", 1) + struct.pack("<HHII", 256, 4, 1, 8) + struct.pack("<I", 8),
    "huge.tif": b"II*\0\x08\0\0\0"
    + struct.pack("<H", 2)
    + struct.pack("<HHIIHHII", 256, 4, 2**30, 0, 257, 4, 1, 2**31)
    + bytes(4),
    "lying.ppm": b"P6 99999999 99999999 255\n" + bytes(100),
    "digits.ppm": b"P6 " + b"9" * 9999 + b" 1 255\n",
    "lying.webp": b"RIFF" + struct.pack("<I", 2**32 - 1) + b"WEBPVP8X" + bytes(30),
}


def put_image(name: str, content: bytes) -> Callable[[Sandbox], Commands]:
    def make(sandbox: Sandbox) -> Commands:
        run = str(sandbox.base / "images-run")
        file = sandbox.write(name, content)
        return [["classify", run, str(file)], ["inspect", run, str(file), "--out", "map.png"]]

    return make


def put_special(how: str) -> Callable[[Sandbox], Commands]:
    def make(sandbox: Sandbox) -> Commands:
        path = sandbox.work / "x.png"
        if how == "FIFO":
            os.mkfifo(path)
        else:
            path.symlink_to("/dev/zero")
        return [["classify", str(sandbox.base / "images-run"), str(path)]]

    return make


def use(sandbox: Sandbox, files: object, format: str, task: str = "classify-images", more: str = "") -> Commands:
    model = {"detect": "detr-small", "caption": "captioner"}.get(task, "vit-tiny")
    text = EXPERIMENT.format(task=task, files=json.dumps(files), format=format, model=model, more=more)
    sandbox.write("experiment.toml", text)
    return [["train", "experiment.toml"]]


def coco(**changes: object) -> str:
    tables: dict[str, object] = {
        "images": [{"id": 1, "file_name": "a.png", "width": 8, "height": 8}],
        "annotations": [{"image_id": 1, "category_id": 1, "bbox": [1, 1, 4, 4], "caption": "a dog"}],
        "categories": [{"id": 1, "name": "dog"}],
    }
    return json.dumps(tables | changes)


COCO: dict[str, str] = {
    "deep": DEEP,
    "outside": coco(images=[{"id": 1, "file_name": "../outside/victim", "width": 8, "height": 8}]),
    "absolute": coco(images=[{"id": 1, "file_name": "/etc/passwd", "width": 8, "height": 8}]),
    "NUL": coco(images=[{"id": 1, "file_name": "a\0b.png", "width": 8, "height": 8}]),
    "surrogate": coco(images=[{"id": 1, "file_name": "\ud800.png", "width": 8, "height": 8}]),
    "size": coco(images=[{"id": 1, "file_name": "a.png", "width": 10**400, "height": 8}]),
    "types": coco(images=[{"id": [1], "file_name": {"a": 1}, "width": "x", "height": None}]),
    "box of NaN": coco(annotations=[{"image_id": 1, "category_id": 1, "bbox": [float("nan")] * 4, "caption": "a"}]),
    "box of 10^400": coco(annotations=[{"image_id": 1, "category_id": 1, "bbox": [10**400, 1, 1, 1], "caption": "a"}]),
    "box of text": coco(annotations=[{"image_id": 1, "category_id": 1, "bbox": "aaaa", "caption": "a"}]),
    "category list": coco(categories=[{"id": [1], "name": "dog"}]),
    "long number": '{"images": ' + "9" * 9999 + "}",
}


def put_coco(content: str, task: str) -> Callable[[Sandbox], Commands]:
    def make(sandbox: Sandbox) -> Commands:
        sandbox.write("a.png", pack_png(8, 8))
        sandbox.write("list.json", content)
        format = "coco" if task == "detect" else "captions"
        return use(sandbox, ["list.json", "."], format, task)

    return make


def pack_npy(values: np.ndarray | bytes) -> bytes:
    if isinstance(values, bytes):
        return values
    file = io.BytesIO()
    np.save(file, values, allow_pickle=True)
    return file.getvalue()


def pack_npz(members: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


def npy_header(text: str) -> bytes:
    return b"\x93NUMPY\x01\0" + struct.pack("<H", len(text) + 1) + text.encode() + b"\n"


def put_npz(how: str) -> Callable[[Sandbox], Commands]:
    def make(sandbox: Sandbox) -> Commands:
        labels = pack_npy(np.zeros(2, np.uint8))
        images = {
            "objects": lambda: pack_npy(np.array([Payload(str(sandbox.canary))], object)),
            "lying shape": lambda: npy_header(f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({2**62}, 8, 8)}}"),
            "code in the header": lambda: npy_header("{'descr': __import__('os').system('true'), 'shape': ()}"),
            "deep header": lambda: npy_header("(" * 30_000),
            "bomb": lambda: pack_npy(np.zeros((2, 20_000, 20_000), np.uint8)),
            "negative shape": lambda: npy_header("{'descr': '|u1', 'fortran_order': False, 'shape': (-1, 8, 8)}"),
        }[how]()
        names = ("x_train", "y_train")
        sandbox.write(
            "a.npz", pack_npz({f"{name}.npy": part for name, part in zip(names, (images, labels), strict=True)})
        )
        return use(sandbox, "a.npz", "npz")

    return make


def put_idx(images: bytes) -> Callable[[Sandbox], Commands]:
    def make(sandbox: Sandbox) -> Commands:
        sandbox.write("images", images)
        sandbox.write("labels", bytes([0, 0, 8, 1]) + struct.pack(">I", 2) + b"\0\1")
        return use(sandbox, ["images", "labels"], "idx")

    return make


def list_cases() -> Iterator[tuple[str, Callable[[Sandbox], Commands], bool]]:
    for name, content in FILES.items():
        yield (
            name,
            put_image(name, content),
            name not in ("1x400.png", "large.png", "text-bomb.png", "profile-bomb.png"),
        )
    for how in ("FIFO", "device"):
        yield f"x.png {how}", put_special(how), True
    for name, text in COCO.items():
        yield f"coco {name}", put_coco(text, "detect"), name != "category list"
    for name in ("deep", "outside", "NUL", "surrogate", "types", "long number"):
        yield f"captions {name}", put_coco(COCO[name], "caption"), True
    for how in ("objects", "lying shape", "code in the header", "deep header", "bomb", "negative shape"):
        yield f"npz {how}", put_npz(how), True
    yield "idx lying", put_idx(bytes([0, 0, 8, 3]) + struct.pack(">III", *[2**32 - 1] * 3)), True
    yield "idx short", put_idx(b"\0\0"), True
