"""Whether the service is up, what it measures, and its page."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from headwise.serve.errors import RequestError
from headwise.serve.openapi import build_openapi
from headwise.serve.routing import Answer, Call, EventStream, Handler, Route
from headwise.web.static import StaticFile, read_static_files

OPEN_PATHS = frozenset(("/health", "/ready"))
PAGE = "serve.html"


async def get_health(call: Call) -> Answer | EventStream:
    """The process answers: restart it if it does not."""
    return Answer({"status": "ok"})


async def get_ready(call: Call) -> Answer | EventStream:
    """Whether requests may be sent here."""
    if call.service.draining:
        raise RequestError(503, "the service is being stopped")
    if not call.service.pool.is_ready:
        raise RequestError(503, "a model is being loaded", wait=2)
    return Answer({"status": "ready"})


async def get_metrics(call: Call) -> Answer | EventStream:
    content = call.service.metrics.render(call.service.pool)
    return Answer(content, media_type="text/plain; version=0.0.4; charset=utf-8")


async def get_openapi(call: Call) -> Answer | EventStream:
    return Answer(build_openapi(call.service.routes))


def build_page_routes() -> list[Route]:
    """The page and its files, which are read once."""
    files = read_static_files(Path(str(resources.files("headwise.serve") / "static")))
    pages = {"/": files["index.html"]} | {f"/static/{name}": file for name, file in files.items()}
    return [Route(path, serve_file(file), "", "page") for path, file in pages.items()]


def serve_file(file: StaticFile) -> Handler:
    async def handle(call: Call) -> Answer | EventStream:
        headers = (("cache-control", "no-cache"), ("etag", file.etag))
        if any(name == b"if-none-match" and value == file.etag.encode() for name, value in call.scope["headers"]):
            return Answer(b"", 304, file.media_type, headers)
        return Answer(file.content, 200, file.media_type, headers)

    return handle


ROUTES = [
    Route("/health", get_health, "Whether the server answers. Needs no key.", "Server", answer={"status": "ok"}),
    Route("/ready", get_ready, "Whether models are loaded; 503 while it stops. Needs no key.", "Server",
          answer={"status": "ready"}),
    Route("/metrics", get_metrics, "Measurements for Prometheus, as text.", "Server"),
    Route("/openapi.json", get_openapi, "This description.", "Server"),
]  # fmt: skip
