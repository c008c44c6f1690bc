"""Pages of the keys of an experiment file, from the pydantic configs: key, type, default, and the comment beside it."""

from __future__ import annotations

import ast
import inspect
import io
import re
import tokenize
import types
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from textwrap import dedent
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import tomli_w
from docstrings import escape, to_markdown
from pydantic import PlainValidator
from pydantic.fields import FieldInfo

from headwise.config.base import Config, Table
from headwise.experiment.config import Experiment

FOLDER = "reference/keys"
MANY = 12  # kinds of a table from which on the keys that most of them have are listed once
SIGNS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
NAMES = {int: "integer", float: "number", bool: "boolean", str: "string", type(None): "none"}
INTRODUCTION = """\
# Experiment file keys

Every key that an experiment file may have, read from the code when this page was built.
[Experiment files](../../experiments.md) shows them in use. A key whose type is a link to kinds takes a name, or a table
with `kind` and the keys of that kind:

```toml
[train]
minutes = 10
schedule = "cosine"                              # all defaults
optimizer = {kind = "adamw", weight_decay = 0.1}
```
"""


@dataclass(frozen=True)
class Key:
    """A row: what a key is called, may hold, holds without being written, and is for."""

    name: str
    type: str
    default: str
    comment: str

    @property
    def row(self) -> str:
        cells = (f"`{self.name}`", self.type, f"`{self.default}`" if self.default else "*required*", self.comment)
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


@dataclass
class Reference:
    """The pages as far as they are written, and what is still to be described."""

    pages: dict[str, str] = field(default_factory=dict)
    titles: dict[str, str] = field(default_factory=dict)
    places: dict[type[Config], str] = field(default_factory=dict)  # config -> page and anchor
    tables: dict[str, Table] = field(default_factory=dict)  # page -> table, to do
    nested: list[type[Config]] = field(default_factory=list)  # tables without kinds, to do on this page
    page: str = "index"

    def describe_type(self, kind: Any, metadata: tuple[Any, ...] = ()) -> str:
        """A type as a reader of TOML knows it; what may be a table is a link to its keys."""
        if get_origin(kind) is Annotated:
            kind, *inner = get_args(kind)
            return self.describe_type(kind, (*inner, *metadata))
        if table := next((found for item in metadata if (found := _table_of(item))), None):
            page = _page_of(table)
            if page not in self.titles:
                self.tables.setdefault(page, table)
            return f"[{table.what}]({page}.md)"
        if isinstance(kind, type) and issubclass(kind, Config):
            if kind not in self.places:
                self.places[kind] = f"{self.page}.md#{_anchor(kind)}"
                self.nested.append(kind)
            return f"[table]({self.places[kind]})"
        origin, arguments = get_origin(kind), get_args(kind)
        if origin is Literal:
            return ", ".join(f"`{_toml(value)}`" for value in arguments)
        if origin in (Union, types.UnionType):
            return " or ".join(self.describe_type(argument) for argument in arguments)
        if origin in (tuple, list):
            inner = [self.describe_type(argument) for argument in arguments if argument is not Ellipsis]
            return f"list of {inner[0]}" if Ellipsis in arguments or origin is list else f"[{', '.join(inner)}]"
        if origin is dict:
            return f"table of {self.describe_type(arguments[1])}"
        bounds = [f"{sign} {getattr(item, name):g}" for item in metadata for name, sign in SIGNS.items()
                  if isinstance(getattr(item, name, None), int | float)]  # fmt: skip
        return " ".join([NAMES.get(kind, getattr(kind, "__name__", str(kind))), ", ".join(bounds)]).strip()

    def keys(self, config: type[Config]) -> list[Key]:
        """The keys of a config, its `kind` left out."""
        fields = {name: found for name, found in config.model_fields.items() if name != "kind"}
        types = {name: self.describe_type(found.annotation, tuple(found.metadata)) for name, found in fields.items()}
        return [Key(name, types[name], _default(found), _comment(config, name)) for name, found in fields.items()]

    def write_page(self, page: str, title: str, text: list[str]) -> None:
        """A page, with the tables without kinds that its keys hold."""
        while self.nested:
            config = self.nested.pop(0)
            text += [f"## {_heading(config)} {{ #{_anchor(config)} }}", _about(config), _rows(self.keys(config))]
        self.titles[page] = title
        self.pages[f"{FOLDER}/{page}.md"] = "\n\n".join(filter(None, text)) + "\n"

    def write_table(self, page: str, table: Table) -> None:
        """A page with a section for each kind of a table."""
        self.page, self.titles[page] = page, ""
        title = f"[{page}]" if page in Experiment.model_fields else f"{table.what.capitalize()} kinds"
        text = [f"# {title}", f"Without a `kind`, it is `{table.default}`."]
        kinds = {name: table[name] for name in table.names}
        keys = {name: self.keys(config) for name, config in kinds.items()}
        common = _common(list(keys.values())) if len(kinds) >= MANY else {}
        if common:
            text += [
                "## Keys that most kinds have",
                "The default is that of most kinds; where another one differs, its section says so.",
                _rows(list(common.values())),
            ]
        for name, config in kinds.items():
            text += [f"## {name}", _about(config)]
            if config in self.places and not self.places[config].startswith(f"{page}.md"):
                text.append(f"Its keys are listed [elsewhere]({self.places[config]}).")
                continue
            self.places.setdefault(config, f"{page}.md#{name}")
            text += _differences(keys[name], common)
        self.write_page(page, title, text)


def render() -> tuple[dict[str, str], list[Any]]:
    """Pages by address and their navigation: the tables of an experiment first, then kinds of parts."""
    reference = Reference()
    tops = {name: found.annotation for name, found in Experiment.model_fields.items()
            if isinstance(found.annotation, type) and issubclass(found.annotation, Config)}  # fmt: skip
    for name, config in tops.items():
        if config is not Config:  # a slot is found by its table
            reference.places[config] = f"{name}.md"
    keys = reference.keys(Experiment)
    reference.write_page("index", "Top level", [INTRODUCTION, "## Top level", _rows(keys)])
    for name, config in tops.items():
        if table := reference.tables.pop(name, None):
            reference.write_table(name, table)
        else:
            reference.page = name
            reference.write_page(name, f"[{name}]", [f"# [{name}]", _about(config), _rows(reference.keys(config))])
    while reference.tables:
        page = next(iter(reference.tables))
        reference.write_table(page, reference.tables.pop(page))
    index, *others = [{title: f"{FOLDER}/{page}.md"} for page, title in reference.titles.items()]
    return reference.pages, [*index.values(), *others]


def _table_of(item: Any) -> Table | None:
    owner = getattr(item.func, "__self__", None) if isinstance(item, PlainValidator) else None
    return owner if isinstance(owner, Table) else None


def _page_of(table: Table) -> str:
    return table.place if table.place in Experiment.model_fields else table.what.replace(" ", "-")


def _anchor(config: type[Config]) -> str:
    return config.__name__.lower()


def _heading(config: type[Config]) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", config.__name__.removesuffix("Config")).capitalize()


def _about(config: type[Config]) -> str:
    return to_markdown(inspect.cleandoc(config.__dict__.get("__doc__") or ""))


def _rows(keys: list[Key]) -> str:
    return "\n".join(["| key | type | default | |", "|---|---|---|---|", *(key.row for key in keys)]) if keys else ""


def _common(kinds: list[list[Key]]) -> dict[str, Key]:
    """The keys that at least half of the kinds have, of one type and meaning, with the default that most have."""
    seen = Counter((key.name, key.type, key.comment) for keys in kinds for key in keys)
    common = {}
    for (name, kind, comment), count in seen.items():
        if 2 * count >= len(kinds):
            defaults = Counter(key.default for keys in kinds for key in keys if key.name == name)
            common[name] = Key(name, kind, defaults.most_common(1)[0][0], comment)
    return common


def _differences(keys: list[Key], common: dict[str, Key]) -> Iterator[str]:
    """What a kind has besides the common keys, with other defaults, and what it lacks."""
    same = {key.name for key in keys if key.name in common and key.type == common[key.name].type}
    yield _rows([key for key in keys if key.name not in same]) or ("" if common else "It has no keys.")
    changed = [key for key in keys if key.name in same and key.default != common[key.name].default]
    if other := [f"`{key.name} = {key.default}`" for key in changed]:
        yield f"Other defaults: {', '.join(other)}."
    names = {key.name for key in keys}
    shared = [f"`{name}`" for name in common if name in names]
    lacking = [f"`{name}`" for name in common if name not in names]
    if lacking and not shared:
        yield "It has none of the keys that most kinds have."
    elif len(lacking) > len(shared):
        yield f"Of the keys that most kinds have, it has {', '.join(shared)}."
    elif lacking:
        yield f"It does not have {', '.join(lacking)}."


def _default(found: FieldInfo) -> str:
    return "" if found.is_required() else _toml(found.get_default(call_default_factory=True))


def _toml(value: Any) -> str:
    """A value as one writes it in an experiment file; of a config, only what differs from its defaults."""
    if isinstance(value, Config):
        said = {name: getattr(value, name) for name, found in type(value).model_fields.items()
                if name == "kind" or getattr(value, name) != _value(found)}  # fmt: skip
        if list(said) == ["kind"]:
            return _toml(said["kind"])
        return "{" + ", ".join(f"{name} = {_toml(inner)}" for name, inner in said.items()) + "}"
    if isinstance(value, tuple | list):
        return "[" + ", ".join(_toml(inner) for inner in value) + "]"
    if isinstance(value, float):
        return f"{value:g}" if value != int(value) else str(value)
    return tomli_w.dumps({"key": value}).removeprefix("key = ").strip() if value is not None else "none"


def _value(found: FieldInfo) -> Any:
    return None if found.is_required() else found.get_default(call_default_factory=True)


def _comment(config: type[Config], name: str) -> str:
    """The comment of a field in the class that declares it, or in the nearest class above that has one."""
    for owner in config.__mro__:
        if name in inspect.get_annotations(owner) and (text := _comments(owner).get(name)):
            return escape(text)
    return ""


@cache
def _comments(owner: type) -> dict[str, str]:
    """Comments of a class's fields: on the lines above, then behind."""
    source = dedent(inspect.getsource(owner))
    comments = {}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and not re.match(r"# (type|noqa|fmt):", token.string):
            comments[token.start[0]] = re.sub(r"\s*# (type|noqa|fmt):.*", "", token.string).lstrip("# ")
    lines = source.splitlines()
    found = {}
    for node in ast.parse(source).body[0].body:  # type: ignore[attr-defined]
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            first = node.lineno
            while first - 1 in comments and lines[first - 2].lstrip().startswith("#"):
                first -= 1
            texts = [comments[line] for line in range(first, (node.end_lineno or 0) + 1) if line in comments]
            found[node.target.id] = " ".join(texts)
    return found
