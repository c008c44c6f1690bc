"""The studio's routes."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse
from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from starlette.exceptions import HTTPException

from headwise.errors import UserError
from headwise.studio.desk import Desk
from headwise.studio.looks import Looks, layer, overview
from headwise.studio.shelf import Shelf
from headwise.web.guard import Address, Guard

MOST_CHARACTERS = 20_000
Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Text = Annotated[str, StringConstraints(max_length=MOST_CHARACTERS)]
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
BINARY = "application/octet-stream"


class LookRequest(BaseModel):
    """A text to look at."""

    model_config = ConfigDict(extra="forbid")

    run: Name
    text: Text = Field(min_length=1)
    target: Text = ""


def application(shelf: Shelf, address: Address) -> Guard:
    """The studio over these runs."""
    app = FastAPI(title="Headwise studio", docs_url=None, redoc_url=None, openapi_url="/api/openapi.json")
    desk, looks = Desk(shelf), Looks()
    app.exception_handler(UserError)(told)
    app.exception_handler(RequestValidationError)(wrong)
    app.exception_handler(HTTPException)(refused)
    pages(app)

    @app.get("/api/runs")
    async def runs() -> list[dict[str, Any]]:
        return await desk.aside(lambda: [item.told() for item in shelf.items().values()])

    @app.post("/api/look")
    async def look(request: LookRequest) -> Response:
        maps, spent = await desk.work(request.run, lambda loaded: loaded.inspect(request.text, request.target))
        about = {"run": request.run, "milliseconds": round(spent, 1)}
        return Response(overview(looks.keep(maps), maps, about), media_type=BINARY)

    @app.get("/api/look/{name}/{kind}/{number}")
    async def look_layer(name: Name, kind: Name, number: int, exact: Annotated[bool, Query()] = False) -> Response:
        return Response(layer(looks[name], kind, number, exact), media_type=BINARY)

    return Guard(app, address)


def pages(app: FastAPI) -> None:
    """The files of the web application: an explicit list, read from the package."""
    root = Path(str(resources.files("headwise.studio") / "static"))
    files = {str(path.relative_to(root)): path for path in sorted(root.rglob("*")) if path.suffix in TYPES}

    @app.get("/", include_in_schema=False)
    async def index() -> FileResponse:
        return FileResponse(files["index.html"], media_type="text/html")

    @app.get("/static/{name:path}", include_in_schema=False)
    async def static(name: str) -> Response:
        if name not in files:
            return JSONResponse({"error": "there is no such file"}, 404)
        return FileResponse(files[name], media_type=TYPES[files[name].suffix], headers={"cache-control": "no-cache"})


async def told(request: Request, error: Exception) -> JSONResponse:
    """A user's mistake, in a sentence."""
    return JSONResponse({"error": str(error)}, 400)


async def refused(request: Request, error: Exception) -> JSONResponse:
    """What the framework itself refuses: unknown paths, bodies that are no JSON."""
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": str(error.detail).lower()}, error.status_code)


async def wrong(request: Request, error: Exception) -> JSONResponse:
    """A request that is none."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"][1:]) or "request"
    return JSONResponse({"error": f"{where}: {first['msg'].lower()}"}, 422)
