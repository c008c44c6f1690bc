"""Static files of a page, in memory."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

MEDIA_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


@dataclass(frozen=True)
class StaticFile:
    """A static file in memory: a page loads many small ones."""

    content: bytes
    media_type: str
    etag: str

    @classmethod
    def read(cls, path: Path) -> StaticFile:
        content = path.read_bytes()
        return cls(content, MEDIA_TYPES[path.suffix], f'"{sha256(content).hexdigest()[:16]}"')

    def respond(self, request: Request) -> Response:
        """The file, or 304 Not Modified if the browser's ETag matches."""
        headers = {"cache-control": "no-cache", "etag": self.etag}
        if request.headers.get("if-none-match") == self.etag:
            return Response(status_code=304, headers=headers)
        return Response(self.content, media_type=self.media_type, headers=headers)


def read_static_files(root: Path) -> dict[str, StaticFile]:
    """The files of a folder by their names in it. They are listed and read once, so no request can name another."""
    return {
        str(path.relative_to(root)): StaticFile.read(path)
        for path in sorted(root.rglob("*"))
        if path.suffix in MEDIA_TYPES
    }
