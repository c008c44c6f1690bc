"""GGUF files for tests, written byte by byte."""

import struct
from pathlib import Path
from typing import Any

StoredTensors = dict[str, tuple[tuple[int, ...], int, bytes]]  # name -> shape, ggml type, bytes


def pack_text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def pack_value(value: Any) -> bytes:
    """A metadata value with its type in front; bytes stand for themselves."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return struct.pack("<I", 8) + pack_text(value)
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value) if value < 2**32 else struct.pack("<IQ", 10, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    items = b"".join(pack_value(item)[4:] for item in value)
    return struct.pack("<I", 9) + pack_value(value[0])[:4] + struct.pack("<Q", len(value)) + items


def pack_info(name: str, shape: tuple[int, ...], kind: int, offset: int) -> bytes:
    return pack_text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape[::-1], kind, offset)


def pack_file(metadata: dict[str, Any], infos: list[bytes], data: bytes, alignment: int = 32) -> bytes:
    head = b"GGUF" + struct.pack("<IQQ", 3, len(infos), len(metadata))
    head += b"".join(pack_text(key) + pack_value(value) for key, value in metadata.items()) + b"".join(infos)
    return head + bytes(-len(head) % alignment) + data


def write_gguf(path: Path, metadata: dict[str, Any], tensors: StoredTensors) -> Path:
    infos, data = [], b""
    for name, (shape, kind, stored) in tensors.items():
        infos.append(pack_info(name, shape, kind, len(data)))
        data += stored + bytes(-len(stored) % 32)
    path.write_bytes(pack_file(metadata, infos, data))
    return path
