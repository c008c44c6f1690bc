"""Routes for the page Explain: the worked example, masks, position encodings, and example sentences."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from zlib import crc32

import numpy as np
from fastapi import APIRouter, Query, Response

from headwise.errors import UserError
from headwise.explain.attention import AttentionExample
from headwise.explain.positions import sinusoid
from headwise.explain.source import MAX_SIZE, load_shipped
from headwise.studio.routes.values import BINARY, JSON, Name, Text
from headwise.studio.worker_pool import WorkerPool

# One word at the end changes the meaning of another.
SENTENCES = (
    "I arrived at the bank after crossing the river",
    "I arrived at the bank after crossing the street",
    "The animal didn't cross the street because it was too tired",
    "The animal didn't cross the street because it was too wide",
)
Length = Annotated[int, Query(ge=2, le=256)]
SmallCount = Annotated[int, Query(ge=0, le=16)]
Number = Annotated[int, Query(ge=0, le=999)]
Count = Annotated[int, Query(ge=1, le=32)]


def routes(pool: WorkerPool) -> APIRouter:
    router = APIRouter(prefix="/api/explain")

    @router.get("/attention")
    async def attention() -> dict[str, Any]:
        return get_example()

    @router.get("/order")
    async def order(text: Annotated[Text, Query()]) -> dict[str, Any]:
        return embed_words(text)

    @router.get("/masks")
    async def masks(
        length: Annotated[int, Query(ge=2, le=16)] = 8,
        padding: SmallCount = 2,
        side: Literal["left", "right"] = "right",
        left: SmallCount = 2,
        right: SmallCount = 0,
        segments: Count = 3,
    ) -> Response:
        body = {
            "length": length, "padding": padding, "side": side, "left": left, "right": right, "segments": segments
        }  # fmt: skip
        return Response(await pool.call("masks", body), media_type=JSON)

    @router.get("/positions")
    async def positions(
        kind: Name = "sinusoid",
        length: Length = 64,
        width: Annotated[int, Query(ge=2, le=256, multiple_of=2)] = 64,
        heads: Count = 8,
        head: Number = 0,
    ) -> Response:
        body = {"kind": kind, "length": length, "width": width, "heads": heads, "head": head}
        return Response(await pool.call("positions", body), media_type=BINARY)

    @router.get("/positions/run")
    async def positions_of_run(run: Name, which: Number = 0, length: Length = 64, head: Number = 0) -> Response:
        body = {"run": run, "which": which, "length": length, "head": head}
        return Response(await pool.call("run-positions", body), media_type=BINARY)

    @router.get("/sentences")
    async def sentences(run: Name) -> Response:
        return Response(await pool.call("sentences", {"run": run, "sentences": SENTENCES}), media_type=JSON)

    return router


def get_example() -> dict[str, Any]:
    """Inputs and projections of the worked example."""
    example = load_shipped(AttentionExample, "attention.toml")
    return {"tokens": example.names, **example.model_dump(include={"inputs", "query", "key", "value"})}


def embed_words(text: str) -> dict[str, Any]:
    """The worked example with a random vector for each distinct word, and sinusoidal positions to add."""
    words = text.split()
    if not 2 <= len(words) <= MAX_SIZE:
        raise UserError(f"text: give between 2 and {MAX_SIZE} words")
    example = get_example()
    width = len(example["query"])
    generators = (np.random.default_rng(crc32(word.encode(errors="replace"))) for word in words)
    inputs = [generator.standard_normal(width).round(2).tolist() for generator in generators]
    positions = sinusoid(np.arange(len(words)), width).tolist()
    return {**example, "tokens": words, "inputs": inputs, "positions": positions}
