"""The studio as an application: routes, files of its pages, and mistakes as sentences."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from hashlib import sha256
from importlib import resources
from pathlib import Path

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from headwise.errors import UserError
from headwise.studio.model_pool import Desk
from headwise.studio.routes import ROUTES
from headwise.studio.run_registry import Shelf
from headwise.web.guard import Address, Guard

TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}

AFTER = 1.0  # seconds from the first page on: importing would slow it down


def application(shelf: Shelf, address: Address) -> Guard:
    """The studio over these runs."""
    app = FastAPI(title="Headwise studio", docs_url=None, redoc_url=None, openapi_url="/api/openapi.json")
    app.exception_handler(UserError)(told)
    app.exception_handler(RequestValidationError)(wrong)
    app.exception_handler(HTTPException)(refused)
    desk = Desk(shelf)
    for routes in ROUTES:
        app.include_router(routes(desk))
    pages(app, desk)
    return Guard(app, address)


def pages(app: FastAPI, desk: Desk) -> None:
    """The files of the web application: an explicit list, read from the package once."""
    root = Path(str(resources.files("headwise.studio") / "static"))
    files = {str(path.relative_to(root)): File.read(path) for path in sorted(root.rglob("*")) if path.suffix in TYPES}

    @app.get("/", include_in_schema=False)
    async def index(request: Request) -> Response:
        asyncio.get_running_loop().call_later(AFTER, desk.prepare)
        return files["index.html"].answer(request)

    @app.get("/static/{name:path}", include_in_schema=False)
    async def static(name: str, request: Request) -> Response:
        return files[name].answer(request) if name in files else JSONResponse({"error": "there is no such file"}, 404)


@dataclass(frozen=True)
class File:
    """A file in memory: there are many small ones, and a page waits for all of them."""

    content: bytes
    kind: str
    tag: str

    @classmethod
    def read(cls, path: Path) -> File:
        content = path.read_bytes()
        return cls(content, TYPES[path.suffix], f'"{sha256(content).hexdigest()[:16]}"')

    def answer(self, request: Request) -> Response:
        """The file, unless the browser has this very one."""
        headers = {"cache-control": "no-cache", "etag": self.tag}
        if request.headers.get("if-none-match") == self.tag:
            return Response(status_code=304, headers=headers)
        return Response(self.content, media_type=self.kind, headers=headers)


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
