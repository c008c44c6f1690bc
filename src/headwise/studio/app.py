"""The studio's ASGI application: API routes, static files, and errors as JSON."""

from __future__ import annotations

import asyncio
from importlib import resources
from pathlib import Path

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from headwise.errors import UserError
from headwise.studio.routes import ROUTES
from headwise.studio.worker_pool import WorkerError, WorkerPool
from headwise.web.disconnect import CancelOnDisconnect
from headwise.web.guard import MAX_BYTES, Address, Guard, Rules
from headwise.web.static import StaticFile, read_static_files

MAX_JSON_BYTES = 2**19  # of bodies that are no files
FILES = ("/api/picture", "/api/fold")  # routes that take images and alignments
PRELOAD_DELAY = 1.0  # seconds after the first page; starting the second worker earlier would slow that page down


def build_app(pool: WorkerPool, address: Address) -> Guard:
    """Build the application in front of these workers."""
    app = FastAPI(title="Headwise studio", docs_url=None, redoc_url=None, openapi_url="/api/openapi.json")
    app.exception_handler(UserError)(handle_user_error)
    app.exception_handler(RequestValidationError)(handle_invalid_request)
    app.exception_handler(HTTPException)(handle_http_error)
    app.exception_handler(WorkerError)(handle_worker_error)
    for routes in ROUTES:
        app.include_router(routes(pool))
    add_static_files(app, pool)
    return Guard(CancelOnDisconnect(app), address, Rules(get_max_bytes=get_max_bytes))


def get_max_bytes(path: str) -> int:
    """The limit of a body: JSON is parsed on the event loop, so it is small."""
    return MAX_BYTES if path.startswith(FILES) else MAX_JSON_BYTES


def add_static_files(app: FastAPI, pool: WorkerPool) -> None:
    """Serve the static files. They are listed and read once, so no request can name another path."""
    root = Path(str(resources.files("headwise.studio") / "static"))
    trace = Path(str(resources.files("headwise.inspect") / "trace.js"))  # which pages of `headwise inspect` have inside
    files = read_static_files(root) | {"draw/trace.js": StaticFile.read(trace)}

    @app.get("/", include_in_schema=False)
    async def index(request: Request) -> Response:
        asyncio.get_running_loop().call_later(PRELOAD_DELAY, pool.preload)
        return files["index.html"].respond(request)

    @app.get("/static/{name:path}", include_in_schema=False)
    async def static(name: str, request: Request) -> Response:
        return files[name].respond(request) if name in files else JSONResponse({"error": "there is no such file"}, 404)


async def handle_user_error(request: Request, error: Exception) -> JSONResponse:
    """A `UserError` as status 400 with its message."""
    return JSONResponse({"error": str(error)}, 400)


async def handle_worker_error(request: Request, error: Exception) -> JSONResponse:
    """A worker that is busy, has died or failed."""
    assert isinstance(error, WorkerError)
    headers = {"retry-after": "2"} if error.status == 503 else {}
    return JSONResponse({"error": str(error)}, error.status, headers)


async def handle_http_error(request: Request, error: Exception) -> JSONResponse:
    """Errors raised by the framework: unknown paths, bodies that are not JSON."""
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": str(error.detail).lower()}, error.status_code)


async def handle_invalid_request(request: Request, error: Exception) -> JSONResponse:
    """A request that fails validation, as status 422 with the first error."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    location = ".".join(str(part) for part in first["loc"][1:]) or "request"
    return JSONResponse({"error": f"{location}: {first['msg'].lower()}"}, 422)
