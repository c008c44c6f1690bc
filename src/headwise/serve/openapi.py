"""The OpenAPI description of the routes, from the table that serves them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic.json_schema import models_json_schema

from headwise import __version__
from headwise.serve.errors import format_error
from headwise.serve.routing import Route

REFS = "#/components/schemas/{model}"
ERRORS = {
    "400": "what is wrong with the request", "401": "the key is missing", "404": "there is no such model",
    "413": "the body is too long", "503": "too many requests; Retry-After says when to try again",
}  # fmt: skip


def build_openapi(routes: Sequence[Route]) -> dict[str, Any]:
    """The description as a JSON object."""
    shown = [route for route in routes if route.tag != "page"]
    bodies = [(route.body, "validation") for route in shown if route.body is not None]
    _, schemas = models_json_schema(bodies, ref_template=REFS)  # type: ignore[arg-type]
    paths: dict[str, Any] = {}
    for route in shown:
        paths.setdefault(route.path, {})[route.method.lower()] = describe_route(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Headwise", "version": __version__, "description": "Models served by `headwise serve`."},
        "paths": paths,
        "components": {
            "schemas": schemas.get("$defs", {}),
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"key": []}, {}],
    }


def describe_route(route: Route) -> dict[str, Any]:
    text = route.path == "/metrics"
    content = {"text/plain" if text else "application/json": {"example": route.answer} if route.answer else {}}
    described: dict[str, Any] = {
        "summary": route.summary,
        "tags": [route.tag],
        "operationId": f"{route.method.lower()}{route.path.replace('/', '_').replace('{', '').replace('}', '')}",
        "responses": {"200": {"description": "the answer", "content": content}},
    }
    for status, reason in ERRORS.items():
        example = format_error(route.path, int(status), reason)
        described["responses"][status] = {
            "description": reason, "content": {"application/json": {"example": example}}
        }  # fmt: skip
    if "{model}" in route.path:
        described["parameters"] = [{"name": "model", "in": "path", "required": True, "schema": {"type": "string"}}]
    if route.body is not None:
        schema = {"$ref": REFS.format(model=route.body.__name__)}
        described["requestBody"] = {
            "required": True, "content": {"application/json": {"schema": schema, "example": route.example}}
        }  # fmt: skip
    return described
