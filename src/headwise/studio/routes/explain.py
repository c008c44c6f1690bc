"""Numbers behind explanations: the worked example, masks, positions, and sentences to try."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal
from zlib import crc32

import numpy as np
from fastapi import APIRouter, Query, Response

from headwise.errors import UserError
from headwise.explain.attention import AttentionExample
from headwise.explain.positions import sinusoid
from headwise.explain.source import LARGEST
from headwise.explain.source import shipped as example
from headwise.studio.binary_response import Pack
from headwise.studio.model_pool import Desk
from headwise.studio.routes.values import BINARY, Name, Text

if TYPE_CHECKING:
    from headwise.inference.trained_model import TrainedModel
    from headwise.studio.position_views import Places

# The lectures' sentences: one word at the end decides what another one means.
SENTENCES = (
    "I arrived at the bank after crossing the river",
    "I arrived at the bank after crossing the street",
    "The animal didn't cross the street because it was too tired",
    "The animal didn't cross the street because it was too wide",
)
Length = Annotated[int, Query(ge=2, le=256)]
Few = Annotated[int, Query(ge=0, le=16)]
Number = Annotated[int, Query(ge=0, le=999)]
Count = Annotated[int, Query(ge=1, le=32)]


def routes(desk: Desk) -> APIRouter:
    router = APIRouter(prefix="/api/explain")

    @router.get("/attention")
    async def attention() -> dict[str, Any]:
        return worked()

    @router.get("/order")
    async def order(text: Annotated[Text, Query()]) -> dict[str, Any]:
        return ordered(text)

    @router.get("/masks")
    async def masks(
        length: Annotated[int, Query(ge=2, le=16)] = 8,
        padding: Few = 2,
        side: Literal["left", "right"] = "right",
        left: Few = 2,
        right: Few = 0,
        segments: Count = 3,
    ) -> dict[str, Any]:
        return await desk.aside(lambda: seen(length, padding, side, left, right, segments))

    @router.get("/positions")
    async def positions(
        kind: Name = "sinusoid",
        length: Length = 64,
        width: Annotated[int, Query(ge=2, le=256, multiple_of=2)] = 64,
        heads: Count = 8,
        head: Number = 0,
    ) -> Response:
        def work() -> bytes:
            from headwise.studio.position_views import shipped

            return packed(shipped(kind, length, width, heads, head))

        return Response(await desk.aside(work), media_type=BINARY)

    @router.get("/positions/run")
    async def positions_of_run(run: Name, which: Number = 0, length: Length = 64, head: Number = 0) -> Response:
        def work(loaded: TrainedModel) -> bytes:
            from headwise.studio.position_views import of_model

            choices, found = of_model(loaded.model, which, length, head)
            return packed(found, choices=choices, which=which)

        return Response((await desk.work(run, work))[0], media_type=BINARY)

    @router.get("/sentences")
    async def sentences(run: Name) -> list[str]:
        return (await desk.work(run, readable))[0]

    return router


def worked() -> dict[str, Any]:
    """The example of the lectures, before anything is computed."""
    found = example(AttentionExample, "attention.toml")
    return {"tokens": found.names, **found.model_dump(include={"inputs", "query", "key", "value"})}


def ordered(text: str) -> dict[str, Any]:
    """Words with vectors that depend on the word alone, and the positions that may be added to them."""
    words = text.split()
    if not 2 <= len(words) <= LARGEST:
        raise UserError(f"text: give between 2 and {LARGEST} words, to be told apart")
    found = worked()
    width = len(found["query"])
    drawn = (np.random.default_rng(crc32(word.encode(errors="replace"))) for word in words)
    inputs = [each.standard_normal(width).round(2).tolist() for each in drawn]
    positions = sinusoid(np.arange(len(words)), width).tolist()
    return {**found, "tokens": words, "inputs": inputs, "positions": positions}


def seen(length: int, padding: int, side: str, left: int, right: int, segments: int) -> dict[str, Any]:
    """What each mask lets through, (queries, keys), as the models' own terms say."""
    import torch

    from headwise.blocks.attention.score_mods import AttentionLayout, Causal, Padding, Segments, Window

    at = torch.arange(length)
    real = (at < length - padding if side == "right" else at >= padding)[None]
    document = (at * min(segments, length) // length)[None]
    layout = AttentionLayout(length, length, at, at, real, document, document)
    score_mods = {"causal": Causal(), "padding": Padding(), "window": Window(left, right), "segments": Segments()}
    found: dict[str, Any] = {"real": real[0].tolist(), "document": document[0].tolist()}
    for name, mod in score_mods.items():
        hidden = mod.mask(layout)
        assert hidden is not None
        found[name] = (~hidden).expand(1, 1, length, length)[0, 0].tolist()
    return found


def packed(places: Places, **about: Any) -> bytes:
    pack = Pack()
    mean, low, high = places.curves()
    return pack.bytes(
        {
            "name": places.name,
            "formula": places.formula,
            "says": places.says,
            "axes": places.axes,
            "symbol": places.symbol,
            "unit": places.unit,
            "head": places.head,
            "promises": places.promises(),
            "table": pack.add(places.table),
            **{name: pack.add(values) for name, values in (("mean", mean), ("low", low), ("high", high))},
            **about,
        }
    )


def readable(loaded: TrainedModel) -> list[str]:
    """Those of the sentences in which a run knows every token."""
    from headwise.text import UNK
    from headwise.vision.pixels import Pixels

    source = loaded.tokenisers.source
    if isinstance(source, Pixels):
        return []
    return [text for text in SENTENCES if UNK not in source.encode(text)]
