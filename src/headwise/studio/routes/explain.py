"""Routes for the page Explain: the worked example, masks, position encodings, and example sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal
from zlib import crc32

import numpy as np
from fastapi import APIRouter, Query, Response

from headwise.errors import UserError
from headwise.explain.attention import AttentionExample
from headwise.explain.positions import sinusoid
from headwise.explain.source import MAX_SIZE, load_shipped
from headwise.studio.binary_response import BinaryResponse
from headwise.studio.model_pool import ModelPool
from headwise.studio.routes.values import BINARY, Name, Text

if TYPE_CHECKING:
    from headwise.inference.trained_model import TrainedModel
    from headwise.studio.position_views import PositionView

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


def routes(pool: ModelPool) -> APIRouter:
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
    ) -> dict[str, Any]:
        return await pool.run(lambda: build_masks(length, padding, side, left, right, segments))

    @router.get("/positions")
    async def positions(
        kind: Name = "sinusoid",
        length: Length = 64,
        width: Annotated[int, Query(ge=2, le=256, multiple_of=2)] = 64,
        heads: Count = 8,
        head: Number = 0,
    ) -> Response:
        def work() -> bytes:
            from headwise.studio.position_views import view_kind

            return pack_view(view_kind(kind, length, width, heads, head))

        return Response(await pool.run(work), media_type=BINARY)

    @router.get("/positions/run")
    async def positions_of_run(run: Name, which: Number = 0, length: Length = 64, head: Number = 0) -> Response:
        def work(trained: TrainedModel) -> bytes:
            from headwise.studio.position_views import view_model

            choices, view = view_model(trained.model, which, length, head)
            return pack_view(view, choices=choices, which=which)

        return Response((await pool.run_with_model(run, work))[0], media_type=BINARY)

    @router.get("/sentences")
    async def sentences(run: Name) -> list[str]:
        return (await pool.run_with_model(run, list_sentences))[0]

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


def build_masks(length: int, padding: int, side: str, left: int, right: int, segments: int) -> dict[str, Any]:
    """What each mask allows, (queries, keys): True = visible. Computed by the models' own score mods."""
    import torch

    from headwise.blocks.attention.score_mods import AttentionLayout, Causal, Padding, Segments, Window

    positions = torch.arange(length)
    keep = (positions < length - padding if side == "right" else positions >= padding)[None]
    document = (positions * min(segments, length) // length)[None]
    layout = AttentionLayout(length, length, positions, positions, keep, document, document)
    score_mods = {"causal": Causal(), "padding": Padding(), "window": Window(left, right), "segments": Segments()}
    allowed: dict[str, Any] = {"keep": keep[0].tolist(), "document": document[0].tolist()}
    for name, mod in score_mods.items():
        mask = mod.mask(layout)
        assert mask is not None
        allowed[name] = (~mask).expand(1, 1, length, length)[0, 0].tolist()
    return allowed


def pack_view(view: PositionView, **extra: Any) -> bytes:
    response = BinaryResponse()
    mean, low, high = view.score_by_distance()
    return response.to_bytes(
        {
            "name": view.name,
            "formula": view.formula,
            "description": view.description,
            "axes": view.axes,
            "symbol": view.symbol,
            "unit": view.unit,
            "head": view.head,
            "properties": view.check_properties(),
            "table": response.add(view.table),
            **{name: response.add(values) for name, values in (("mean", mean), ("low", low), ("high", high))},
            **extra,
        }
    )


def list_sentences(trained: TrainedModel) -> list[str]:
    """The example sentences whose tokens are all in the vocabulary of a run."""
    from headwise.text import UNK
    from headwise.vision.pixels import Pixels

    tokeniser = trained.tokenisers.source
    if isinstance(tokeniser, Pixels):
        return []
    return [text for text in SENTENCES if UNK not in tokeniser.encode(text)]
