"""The studio as an application: routes, files of its pages, and mistakes as sentences."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse
from starlette.exceptions import HTTPException

from headwise.errors import UserError
from headwise.studio.desk import Desk
from headwise.studio.routes import ROUTES
from headwise.studio.shelf import Shelf
from headwise.web.guard import Address, Guard

TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


def application(shelf: Shelf, address: Address) -> Guard:
    """The studio over these runs."""
    app = FastAPI(title="Headwise studio", docs_url=None, redoc_url=None, openapi_url="/api/openapi.json")
    app.exception_handler(UserError)(told)
    app.exception_handler(RequestValidationError)(wrong)
    app.exception_handler(HTTPException)(refused)
    desk = Desk(shelf)
    for routes in ROUTES:
        app.include_router(routes(desk))
    pages(app)
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
