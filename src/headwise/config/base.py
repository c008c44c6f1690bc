"""Frozen, validated values, and the explicit tables from which `kind` picks.

A config is a value one can print, compare and hash. It never holds a module and imports no torch;
the only place where it meets a module is its `build` method, which imports what it needs.

    >>> norms = Table("norm", default="layer")
    >>> @norms.add
    ... class Layer(Config):
    ...     kind: Literal["layer"] = "layer"
    ...     eps: float = 1e-5
    >>> norms.parse("layer") == norms.parse({"eps": 1e-5}) == Layer()
    True
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Annotated, Any, ClassVar, Literal, TypeVar, cast  # noqa: F401  (Literal: for the example)

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)

from headwise.errors import UserError, nearest
from headwise.utils.files import check_name

NonNegativeInt = Annotated[int, Field(ge=0)]
PositiveInt = Annotated[int, Field(ge=1)]
NonNegativeFloat = Annotated[float, Field(ge=0)]
PositiveFloat = Annotated[float, Field(gt=0)]
Fraction = Annotated[float, Field(ge=0, lt=1)]


class Config(BaseModel):
    """A frozen value with checked fields; an unknown key names ours where it is another library's, else the nearest."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    place: ClassVar[str | None] = None  # which table of an experiment it is, from the root; None: one of several

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, data: Any, info: ValidationInfo) -> Any:
        if isinstance(data, Mapping):
            unknown = [str(key) for key in data if key not in cls.model_fields]
            place = info.context["place"] if info.context and cls.place else cls.place
            if unknown:
                raise Problems([((key,), f"unknown key; {cls.suggest(key, data, place)}") for key in unknown])
        return data

    @classmethod
    def suggest(cls, key: str, data: Mapping[str, Any], place: str | None) -> str:
        """What may have been meant by a key that the table `data` at `place` cannot have."""
        from headwise.config import suggestions

        return suggestions.suggest(key, place, cls.known_keys()) or nearest(key, cls.known_keys())

    @classmethod
    def known_keys(cls) -> tuple[str, ...]:
        """The keys of its table."""
        return tuple(cls.model_fields)

    def replace(self, **changes: Any) -> Any:
        """A copy with some fields replaced, validated again."""
        return type(self).model_validate({**dict(self), **changes})


class Problems(ValueError):
    """What is wrong inside a nested table: (path of keys, sentence) pairs."""

    def __init__(self, found: list[tuple[tuple[str, ...], str]]):
        super().__init__("; ".join(f"{'.'.join(path)}: {text}" for path, text in found))
        self.found = found


def list_problems(error: ValidationError) -> list[tuple[tuple[str, ...], str]]:
    """pydantic's errors as (path, sentence), nested tables included, without its URLs."""
    found: list[tuple[tuple[str, ...], str]] = []
    for item in error.errors(include_url=False):
        path = tuple(str(key) for key in item["loc"])
        inner = item.get("ctx", {}).get("error")
        if isinstance(inner, Problems):
            found += [(path + deeper, text) for deeper, text in inner.found]
        else:
            text = item["msg"].removeprefix("Value error, ")
            given = item.get("input")
            shown = f" (it is {given!r})" if isinstance(given, str | int | float | bool) else ""
            found.append((path, text[:1].lower() + text[1:] + shown))
    return found


Kind = TypeVar("Kind", bound=type[Config])


class Table:
    """A registry of config classes by `kind`. `homes` says where the built-in ones live ("module:Class"); each is
    imported when it is first looked up, so that names are known without torch. Others enter with `add`.

    `place` is the table of an experiment that it is for, if there is only one.
    """

    def __init__(self, what: str, default: str, place: str | None = None, homes: Mapping[str, str] | None = None):
        self.what = what
        self.default = default
        self.place = place
        self.homes = dict(homes or {})
        self.loaded: dict[str, type[Config]] = {}

    def add(self, cls: Kind) -> Kind:
        """Enter a config class under the default of its `kind` field; works as a decorator."""
        config: type[Config] = cls
        self.loaded[config.model_fields["kind"].default] = config
        if self.place is not None:
            config.place = self.place
        return cls

    @property
    def names(self) -> list[str]:
        """Every kind that can be looked up."""
        return list(dict.fromkeys((*self.homes, *self.loaded)))

    def __getitem__(self, name: str) -> type[Config]:
        if name not in self.loaded and name in self.homes:
            module, _, cls = self.homes[name].partition(":")
            self.loaded[name] = getattr(import_module(module), cls)
            if self.place is not None:
                self.loaded[name].place = self.place
        if name not in self.loaded:
            raise Problems([(("kind",), f"no {self.what} is called '{name}'; {self.suggest(name)}")])
        return self.loaded[name]

    def suggest(self, name: str) -> str:
        """The end of a sentence about an unknown kind: the nearest ones, or all of them."""
        return nearest(name, self.names)

    def check_kind(self, value: Any) -> None:
        """Refuse an unknown kind without importing any known one."""
        kind = value.get("kind", self.default) if isinstance(value, Mapping) else value
        if isinstance(kind, str) and kind not in self:
            raise Problems([(("kind",), f"no {self.what} is called '{kind}'; {self.suggest(kind)}")])

    def __contains__(self, name: str) -> bool:
        return name in self.homes or name in self.loaded

    def parse(self, value: Any) -> Config:
        """A config of this table from a config, a name, or a dict with or without `kind`."""
        if isinstance(value, Config):
            return value
        if isinstance(value, str):
            value = {"kind": value}
        if not isinstance(value, Mapping):
            raise ValueError(f"a {self.what} is a name or a table with `kind`, not {value!r}")
        cls = self[str(value.get("kind", self.default))]
        try:
            return cls.model_validate(dict(value), context={"place": self.place})
        except ValidationError as error:
            raise Problems(list_problems(error)) from None


def slot(table: Table) -> Any:
    """The type of a field that holds any kind of `table`: `norm: slot(NORMS) = ...`."""
    return Annotated[
        Config,
        PlainValidator(table.parse),
        PlainSerializer(lambda value: value.model_dump(mode="json"), return_type=dict),
        WithJsonSchema({"title": table.what, "type": ["object", "string"]}),
    ]


FolderName = Annotated[str, AfterValidator(check_name)]  # of a folder of runs: it stays inside


def validate(cls: type[Any], data: Mapping[str, Any], where: str = "") -> Any:
    """Make a config from plain data; a problem becomes one sentence that names file and key."""
    try:
        return cls.model_validate(dict(data))
    except ValidationError as error:
        found = list_problems(error)
    except Problems as error:
        found = error.found
    raise UserError("\n".join(": ".join(filter(None, (where, ".".join(path), text))) for path, text in found))


STACKS = ("encoder", "decoder")  # tables of a model whose `depth` is the model's where they do not say theirs


def merge(base: Mapping[str, Any], over: Mapping[str, Any], later: bool = True) -> dict[str, Any]:
    """`over` laid on `base`, table by table; another `kind` replaces its table whole. A `depth` of the model replaces
    those that its stacks were given before, unless both are said at once (not `later`).

    >>> merge({"norm": {"kind": "layer", "eps": 1.0}}, {"norm": {"kind": "rms"}})
    {'norm': {'kind': 'rms'}}
    >>> merge({"norm": "rms"}, {"norm": {"eps": 1.0}})
    {'norm': {'kind': 'rms', 'eps': 1.0}}
    >>> merge({"encoder": {"depth": 3, "shared": True}}, {"depth": 6})
    {'encoder': {'shared': True}, 'depth': 6}
    """
    merged = dict(base)
    for side in STACKS if later and "depth" in over else ():
        if isinstance(stack := merged.get(side), Mapping):
            merged[side] = {key: value for key, value in stack.items() if key != "depth"}
    for key, value in over.items():
        old = merged.get(key)
        if isinstance(old, str) and isinstance(value, Mapping):
            old = {"kind": old}  # a name stands for its table
        same_kind = (
            isinstance(old, Mapping)
            and isinstance(value, Mapping)
            and ("kind" not in value or "kind" not in old or value["kind"] == old["kind"])
        )
        merged[key] = merge(cast(Mapping[str, Any], old), value, later) if same_kind else value
    return merged
