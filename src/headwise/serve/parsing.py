"""JSON bodies of strangers: whatever is in them, a sentence or a value, in milliseconds."""

from __future__ import annotations

import json
from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel, ValidationError

from headwise.serve.errors import RequestError
from headwise.serve.limits import MAX_DEPTH, MAX_JSON_BYTES, MAX_KEYS

Body = TypeVar("Body", bound=BaseModel)
MAX_MARKS = 1000  # of the signs that JSON is made of, in bodies that are large because of an image


def parse_object(body: bytes) -> dict[str, Any]:
    """Parse a body that must be one JSON object.

    >>> parse_object(b'{"text": "a"}')
    {'text': 'a'}
    """
    if len(body) > MAX_JSON_BYTES and sum(body.count(mark) for mark in (b'"', b"[", b"{", b",")) > MAX_MARKS:
        raise RequestError(413, f"a body of over {MAX_JSON_BYTES:,} bytes may only have an image; send less")
    try:
        found = json.loads(body.decode("utf-8"), parse_constant=_refuse_constant)
    except UnicodeDecodeError:
        raise RequestError(400, "the body is not UTF-8; send JSON in UTF-8") from None
    except RecursionError:
        raise RequestError(400, "the body is nested too deeply; send a flat object") from None
    except ValueError as error:
        detail = error.msg if isinstance(error, json.JSONDecodeError) else str(error).partition(";")[0]
        raise RequestError(400, f"the body is not JSON ({detail[:100]}); send a JSON object") from None
    if not isinstance(found, dict):
        raise RequestError(400, 'the body is not a JSON object; send one, such as {"text": "..."}')
    _check_values(found)
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON")


def _check_values(found: dict[str, Any]) -> None:
    """Refuse too many keys, too deep nesting, and characters that no tokeniser takes."""
    level: list[Any] = [found]
    keys = 0
    for _ in range(MAX_DEPTH):
        inner: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                keys += len(each)
                if keys > MAX_KEYS:
                    raise RequestError(400, f"the body has more than {MAX_KEYS:,} keys; send fewer")
                inner += each.values()
                _check_texts(each)
            else:
                inner += each
        _check_texts(each for each in inner if isinstance(each, str))
        level = [each for each in inner if isinstance(each, dict | list)]
        if not level:
            return
    raise RequestError(400, "the body is nested too deeply; send a flat object")


def _check_texts(texts: Any) -> None:
    for text in texts:
        if text.isascii():
            if "\0" not in text:
                continue
        else:
            try:
                text.encode("utf-8")
            except UnicodeEncodeError:
                raise RequestError(400, "a text has half of a surrogate pair, which is no character") from None
            if "\0" not in text:
                continue
        raise RequestError(400, "a text has a NUL character; leave it out")


def validate_body(schema: type[Body], found: dict[str, Any]) -> Body:
    """The body as its schema has it; else 400 with the first error."""
    if len(found) > 100:
        raise RequestError(400, f"the body has {len(found)} keys; see /openapi.json for those that there are")
    try:
        return schema.model_validate(found)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part)[:60] for part in first["loc"])
        message = first["msg"].removeprefix("Value error, ")
        reason = "is not a field of this request" if first["type"] == "extra_forbidden" else message.lower()
        name = str(first["loc"][0])[:60] if first["loc"] else None
        raise RequestError(400, f"{place or 'body'}: {reason}", name) from None
