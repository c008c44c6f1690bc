"""A refused request, in the shapes of the APIs."""

from __future__ import annotations

from typing import Any

KINDS = {400: "invalid_request_error", 401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}


class RequestError(Exception):
    """Why a request is not answered: an HTTP status, a sentence, the field, and a word for programs."""

    def __init__(self, status: int, message: str, param: str | None = None, code: str | None = None, wait: int = 0):
        super().__init__(message)
        self.status, self.message, self.param, self.code, self.wait = status, message, param, code, wait


def format_error(
    path: str, status: int, message: str, param: str | None = None, code: str | None = None
) -> dict[str, Any]:
    """The JSON of an error: OpenAI's under /v1, LibreTranslate's and ours elsewhere, which are the same."""
    if not path.startswith("/v1/"):
        return {"error": message}
    kind = KINDS.get(status, "server_error" if status >= 500 else "invalid_request_error")
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}
