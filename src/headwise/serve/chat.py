"""Chat templates: messages -> the token ids of a prompt.

A template is a Jinja program that comes with somebody's weights. It is rendered in Jinja's immutable sandbox, which is
narrowed further: values are looked up as items, of attributes only a few methods of texts and what loops have, there
are no filters beyond those below, and lines and characters are counted.

A message that spells a special token is refused: in the prompt it would end the message.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from pathlib import Path
from time import monotonic
from types import FrameType
from typing import TYPE_CHECKING, Any, cast

from headwise.errors import UserError
from headwise.text import BOS
from headwise.text.base import Tokeniser
from headwise.text.hf import HfTokeniser
from headwise.utils.files import parse_json, read_bytes

if TYPE_CHECKING:
    from jinja2.sandbox import SandboxedEnvironment

MAX_TEMPLATE_BYTES = 64 * 2**10
MAX_CONFIG_BYTES = 16 * 2**20  # of tokenizer_config.json, which lists added tokens
MAX_PROMPT_CHARACTERS = 200_000
SECONDS = 1.0
TEXT_METHODS = frozenset(("strip", "lstrip", "rstrip", "split", "startswith", "endswith", "upper", "lower", "title"))
LOOP_ATTRIBUTES = frozenset(("first", "last", "index", "index0", "length", "revindex", "previtem", "nextitem"))
MAP_METHODS = frozenset(("items", "keys", "values", "get"))
FILTERS = (
    "capitalize", "count", "d", "default", "first", "int", "items", "last", "length", "list", "lower", "map",
    "rejectattr", "reverse", "safe", "selectattr", "string", "title", "trim", "upper",
)  # fmt: skip


@dataclass(frozen=True)
class ChatTemplate:
    """A chat template, with the special tokens that it may name."""

    source: str
    names: Mapping[str, str]  # bos_token, eos_token, ...
    where: str
    marked: bool = True  # whether decoding puts BOS before every prompt itself

    def encode(self, messages: Sequence[Mapping[str, str]], tokeniser: Tokeniser) -> list[int]:
        """The token ids of the prompt that asks for the assistant's next message."""
        specials = find_special_tokens(tokeniser)
        for message in messages:
            for token in specials:
                if token in message["content"]:
                    raise UserError(f"messages: a text spells the special token {token}; leave it out")
        ids: list[int] = []
        for piece in split_at(self.render(messages), specials):
            ids += [specials[piece]] if piece in specials else tokeniser.encode(piece)
        return ids[1:] if self.marked and ids[:1] == [BOS] else ids

    def render(self, messages: Sequence[Mapping[str, str]]) -> str:
        """The prompt as a text."""
        from jinja2.exceptions import TemplateError

        try:
            template = build_environment().from_string(self.source)
            pieces, length = [], 0
            with_limit = TimeLimit(SECONDS)
            with with_limit:
                for piece in template.generate(
                    messages=[dict(each) for each in messages], add_generation_prompt=True, **self.names
                ):
                    length += len(piece)
                    if length > MAX_PROMPT_CHARACTERS:
                        raise UserError(
                            f"messages: the prompt has over {MAX_PROMPT_CHARACTERS:,} characters; send less"
                        )
                    pieces.append(piece)
        except UserError:
            raise
        except TimeoutError:
            raise UserError(f"messages: the chat template took longer than {SECONDS:.0f} second; send less") from None
        except TemplateError as error:
            raise UserError(f"messages: the chat template refuses them ({str(error)[:200]})") from None
        except Exception as error:  # a template may do anything wrong that Python has an exception for
            raise UserError(f"messages: the chat template fails ({type(error).__name__})") from None
        return "".join(pieces)


class TimeLimit:
    """Raises TimeoutError in the block after some seconds, at the next line of Python."""

    def __init__(self, seconds: float):
        self.end = monotonic() + seconds

    def __enter__(self) -> None:
        self.before = sys.gettrace()
        sys.settrace(self._trace)

    def __exit__(self, *error: object) -> None:
        sys.settrace(self.before)

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        if monotonic() > self.end:
            raise TimeoutError
        return self._trace


def build_environment() -> SandboxedEnvironment:
    from jinja2 import Undefined, nodes
    from jinja2.exceptions import TemplateError
    from jinja2.runtime import LoopContext
    from jinja2.sandbox import ImmutableSandboxedEnvironment
    from jinja2.utils import Namespace
    from jinja2.visitor import NodeTransformer

    class Sandbox(ImmutableSandboxedEnvironment):
        """Items instead of attributes, and numbers that stay small."""

        intercepted_binops = frozenset(("*", "**", "%", "+"))

        def _parse(self, source: str, name: Any, filename: Any) -> Any:
            return ConcatAsSum().visit(super()._parse(source, name, filename))

        def getattr(self, obj: Any, attribute: str) -> Any:
            if isinstance(obj, Namespace) and not attribute.startswith("_"):
                return getattr(obj, attribute, self.undefined(obj=obj, name=attribute))
            if isinstance(obj, Mapping):
                return obj[attribute] if attribute in obj else self._get_method(obj, attribute, MAP_METHODS)
            if isinstance(obj, str) and attribute == "replace":
                return partial(replace_text, obj)
            if isinstance(obj, str):
                return self._get_method(obj, attribute, TEXT_METHODS)
            if isinstance(obj, LoopContext):
                return self._get_method(obj, attribute, LOOP_ATTRIBUTES)
            return self.undefined(obj=obj, name=attribute)

        def _get_method(self, obj: Any, attribute: str, allowed: frozenset[str]) -> Any:
            return getattr(obj, attribute) if attribute in allowed else self.undefined(obj=obj, name=attribute)

        def getitem(self, obj: Any, argument: Any) -> Any:
            try:
                return obj[argument]
            except (LookupError, TypeError, AttributeError):
                return self.getattr(obj, argument) if isinstance(argument, str) else self.undefined(obj=obj)

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            is_text = isinstance(left, str) or isinstance(right, str)
            if operator == "**" or (operator in "*%" and is_text):
                raise TemplateError(f"{operator} is not allowed on texts")
            found = super().call_binop(context, operator, left, right)
            if isinstance(found, str | list) and len(found) > MAX_PROMPT_CHARACTERS:
                raise TemplateError("a text grows too long")
            return found

    class ConcatAsSum(NodeTransformer):
        """a ~ b as a sum of texts, whose length is checked."""

        def visit_Concat(self, node: Any) -> Any:
            self.generic_visit(node)
            texts = [nodes.Filter(each, "string", [], [], None, None) for each in node.nodes]
            return reduce(lambda total, each: nodes.Add(total, each), texts[1:], cast(nodes.Expr, texts[0]))

    def refuse(message: str) -> None:
        raise TemplateError(message)

    environment = Sandbox(trim_blocks=True, lstrip_blocks=True, undefined=Undefined)
    environment.filters = {name: environment.filters[name] for name in FILTERS} | {
        "tojson": lambda value, indent=None: json.dumps(value, ensure_ascii=False, indent=min(indent or 0, 8) or None),
        "join": join_texts,
    }
    environment.globals = {"raise_exception": refuse, "namespace": Namespace, "range": limited_range}
    return environment


def replace_text(text: str, old: str, new: str, count: int = -1) -> str:
    """`str.replace` whose result is not too long."""
    check_length(len(text) + (text.count(old) + (not old)) * len(new))
    return text.replace(old, new, count)


def join_texts(texts: Iterable[Any], separator: str = "", attribute: str | None = None) -> str:
    """The filter `join`, whose result is not too long."""
    parts = [str(each[attribute] if attribute else each) for each in texts]
    check_length(sum(map(len, parts)) + len(parts) * len(separator))
    return separator.join(parts)


def check_length(length: int) -> None:
    if length > MAX_PROMPT_CHARACTERS:
        raise ValueError("a text grows too long")


def limited_range(*bounds: int) -> range:
    found = range(*bounds)
    if len(found) > 1000:
        raise ValueError("too long a range")
    return found


def find_special_tokens(tokeniser: Tokeniser) -> dict[str, int]:
    """The special tokens of an imported tokeniser with their ids."""
    if not isinstance(tokeniser, HfTokeniser):
        return {}
    ids = tokeniser.vocabulary_map.headwise_ids
    added = tokeniser.engine.get("added_tokens") or []
    return {str(each["content"]): ids[each["id"]] for each in added if each["special"] and each["id"] < len(ids)}


def split_at(text: str, specials: Mapping[str, int]) -> list[str]:
    """The text in pieces, special tokens alone.

    >>> split_at("<s>hi</s>", {"<s>": 1, "</s>": 2})
    ['<s>', 'hi', '</s>']
    """
    if not specials:
        return [text] if text else []
    pattern = "|".join(re.escape(token) for token in sorted(specials, key=len, reverse=True))
    return [piece for piece in re.split(f"({pattern})", text) if piece]


def read_chat_template(folder: Path, file: Path | None, marked: bool) -> ChatTemplate | None:
    """The template in `file`, or that of a Hugging Face folder: chat_template.jinja, or the key of
    tokenizer_config.json; None where there is none."""
    config = _read_config(folder / "tokenizer_config.json")
    names = {
        key: value["content"] if isinstance(value, dict) else value
        for key, value in config.items()
        if key.endswith("_token") and isinstance(value, str | dict) and (isinstance(value, str) or "content" in value)
    }
    where = file or folder / "chat_template.jinja"
    try:
        return ChatTemplate(read_bytes(where, MAX_TEMPLATE_BYTES).decode(), names, str(where), marked)
    except (OSError, UnicodeDecodeError) as error:
        if file is not None:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise UserError(f"--chat-template {file}: cannot be read ({reason}); name a file in Jinja") from None
    found = config.get("chat_template")
    if isinstance(found, list):
        named = {each.get("name"): each.get("template") for each in found if isinstance(each, dict)}
        found = named.get("default")
    if not isinstance(found, str) or len(found) > MAX_TEMPLATE_BYTES:
        return None
    return ChatTemplate(found, names, str(folder / "tokenizer_config.json"), marked)


def _read_config(file: Path) -> dict[str, Any]:
    try:
        found = parse_json(read_bytes(file, MAX_CONFIG_BYTES).decode())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
