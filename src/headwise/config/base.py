"""Base of all configs, and the registries in which `kind` is looked up.

A config is a frozen pydantic model that can be printed, compared and hashed. It holds no module and imports no torch;
its `build` method imports what it needs and returns the module.

    >>> norms = Table("norm", default="layer")
    >>> @norms.add
    ... class Layer(Config):
    ...     kind: Literal["layer"] = "layer"
    ...     eps: float = 1e-5
    >>> norms.parse("layer") == norms.parse({"eps": 1e-5}) == Layer()
    True
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import wraps
from importlib import import_module
from inspect import signature
from typing import Annotated, Any, ClassVar, Literal, TypeVar, cast  # noqa: F401  (Literal: for the example)
from weakref import WeakSet

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

MAX_INT = 2**63  # integers of arrays and tensors are smaller
MAX_SHOWN = 80  # characters of a value in an error sentence
NonNegativeInt = Annotated[int, Field(ge=0)]
PositiveInt = Annotated[int, Field(ge=1)]
NonNegativeFloat = Annotated[float, Field(ge=0)]
PositiveFloat = Annotated[float, Field(gt=0)]
Fraction = Annotated[float, Field(ge=0, lt=1)]


class Config(BaseModel):
    """A frozen, validated config. An unknown key is refused with a suggestion."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    place: ClassVar[str | None] = None  # path of its table in an experiment; None: it may stand in several

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        if "build" in vars(cls) and not cls.__module__.startswith("headwise."):  # a config of the user's own
            setattr(cls, "build", check_build(vars(cls)["build"], cls))  # noqa: B010  (mypy: not all have a build)

    def check_built(self, built: Any, *arguments: Any) -> Any:
        """Check what the `build` of a user's config returned, and return it."""
        if built is None:
            raise UserError(f"{describe_config(self)}.build returns nothing; return what it builds")
        return built

    @model_validator(mode="before")
    @classmethod
    def _check_keys(cls, data: Any, info: ValidationInfo) -> Any:
        if isinstance(data, Mapping):
            unknown = [str(key) for key in data if key not in cls.model_fields]
            place = info.context["place"] if info.context and cls.place else cls.place
            if unknown:
                raise Problems([((key,), f"unknown key; {cls.suggest(key, data, place)}") for key in unknown])
            if large := [str(key) for key, value in data.items() if type(value) is int and abs(value) >= MAX_INT]:
                raise Problems([((key,), "the number has more than 64 bits; choose a smaller one") for key in large])
        return data

    @classmethod
    def suggest(cls, key: str, data: Mapping[str, Any], place: str | None) -> str:
        """The end of the error sentence for an unknown key of the table `data` at `place`."""
        from headwise.config import suggestions

        return suggestions.suggest(key, place, cls.known_keys()) or nearest(key, cls.known_keys())

    @classmethod
    def known_keys(cls) -> tuple[str, ...]:
        """The keys that its table may have."""
        return tuple(cls.model_fields)

    def replace(self, **changes: Any) -> Any:
        """A copy with some fields replaced, validated again."""
        return type(self).model_validate({**dict(self), **changes})


def describe_config(config: Config) -> str:
    """Kind and class of a config, for errors: `fading_mean: FadingMeanConfig`."""
    kind, name = getattr(config, "kind", ""), type(config).__name__
    return f"{kind}: {name}" if kind else name


def check_build(build: Callable[..., Any], cls: type[Config]) -> Callable[..., Any]:
    """Wrap the `build` method of a user's config: wrong arguments, errors and wrong results are a `UserError`."""
    parameters = signature(build)
    bases = (vars(base)["build"] for base in cls.__mro__[1:] if "build" in vars(base))
    expected = next((f"build({', '.join(signature(base).parameters)})" for base in bases), "build(self)")

    @wraps(build)
    def checked(self: Config, *arguments: Any, **options: Any) -> Any:
        from headwise.config.plugins import describe_error

        name = f"{describe_config(self)}.build"
        try:
            parameters.bind(self, *arguments, **options)
        except TypeError:
            taken = ", ".join(parameters.parameters)
            raise UserError(f"{name}({taken}): takes other arguments than it is given; write {expected}") from None
        try:
            built = build(self, *arguments, **options)
        except (UserError, RuntimeError):  # RuntimeError: torch's own, such as too little memory
            raise
        except Exception as error:
            raise UserError(f"{name} fails: {describe_error(error, build.__code__.co_filename)}") from error
        return self.check_built(built, *arguments)

    return checked


class Problems(ValueError):
    """Validation errors inside a nested table: (path of keys, sentence) pairs."""

    def __init__(self, problems: list[tuple[tuple[str, ...], str]]):
        super().__init__("; ".join(f"{'.'.join(path)}: {text}" for path, text in problems))
        self.problems = problems


def shorten(value: Any) -> str:
    """A value as an error sentence shows it: in one line, without its middle where it is long."""
    shown = repr(value)
    return shown if len(shown) <= MAX_SHOWN else f"{shown[: MAX_SHOWN // 2]} ... {shown[-MAX_SHOWN // 2 :]}"


def list_problems(error: ValidationError) -> list[tuple[tuple[str, ...], str]]:
    """pydantic's errors as (path, sentence), nested tables included, without its URLs."""
    problems: list[tuple[tuple[str, ...], str]] = []
    for item in error.errors(include_url=False):
        path = tuple(str(key) for key in item["loc"])
        inner = item.get("ctx", {}).get("error")
        if isinstance(inner, Problems):
            problems += [(path + keys, text) for keys, text in inner.problems]
        else:
            text = item["msg"].removeprefix("Value error, ")
            value = item.get("input")
            shown = f" (it is {shorten(value)})" if isinstance(value, str | int | float | bool) else ""
            problems.append((path, text[:1].lower() + text[1:] + shown))
    return problems


Kind = TypeVar("Kind", bound=type[Config])


def _find_definition(cls: type) -> tuple[str, str]:
    """The file, or else the module, and the name of a class; one file may be imported under two module names."""
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    return file or cls.__module__, cls.__qualname__


class Table:
    """A registry of config classes by `kind`. `homes` maps built-in kinds to "module:Class"; a class is imported when
    it is first looked up, so that names are known without torch. `add` registers others.

    `place` is the path of the table in an experiment, if there is only one.
    """

    tables: ClassVar[WeakSet[Table]] = WeakSet()  # all tables of the process

    def __init__(self, what: str, default: str, place: str | None = None, homes: Mapping[str, str] | None = None):
        Table.tables.add(self)
        self.what = what
        self.default = default
        self.place = place
        self.homes = dict(homes or {})
        self.loaded: dict[str, type[Config]] = {}

    def add(self, cls: Kind) -> Kind:
        """Register a config class under the default of its `kind` field; works as a decorator. A kind that another
        class has is refused."""
        config: type[Config] = cls
        self.loaded[self.check_new(config)] = config
        if self.place is not None:
            config.place = self.place
        return cls

    def check_new(self, cls: type[Config]) -> str:
        """The kind of a class that is to be added; raises a UserError if it is no config or its kind is taken."""
        name = getattr(cls, "__name__", repr(cls))
        if not (isinstance(cls, type) and issubclass(cls, Config)):
            raise UserError(f"{name}: is not a config; add a config class as a {self.what}, whose build returns it")
        kind = cls.model_fields["kind"].default if "kind" in cls.model_fields else None
        if not isinstance(kind, str):
            raise UserError(f'{name}: has no kind; write kind: Literal["my_name"] = "my_name"')
        if self.is_taken(kind, cls):
            raise UserError(f"{name}: there is a {self.what} '{kind}' already; choose another kind")
        return kind

    def is_taken(self, kind: str, cls: type[Config] | None = None) -> bool:
        """Whether the kind is that of another class than `cls`. A class that is defined again, as in a notebook,
        replaces itself."""
        if kind in self.homes:
            return cls is None or self.homes[kind] != f"{cls.__module__}:{cls.__qualname__}"
        other = self.loaded.get(kind)
        if cls is None or other is None:
            return other is not None
        return _find_definition(other) != _find_definition(cls)

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
        if name not in self:
            raise Problems([(("kind",), f"no {self.what} is called '{name}'; {self.suggest(name)}")])
        return self.loaded[name]

    def suggest(self, name: str) -> str:
        """The end of the error sentence for an unknown kind: the nearest ones, or all of them."""
        return nearest(name, self.names)

    def check_kind(self, value: Any) -> None:
        """Refuse an unknown kind without importing any known one."""
        kind = value.get("kind", self.default) if isinstance(value, Mapping) else value
        if isinstance(kind, str) and kind not in self:
            raise Problems([(("kind",), f"no {self.what} is called '{kind}'; {self.suggest(kind)}")])

    def __contains__(self, name: str) -> bool:
        if name in self.homes or name in self.loaded:
            return True
        from headwise.config.plugins import load_entry_points

        load_entry_points()  # now, so that they cost nothing where all kinds are built in
        return name in self.loaded

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


FolderName = Annotated[str, AfterValidator(check_name)]  # of a run's folder; no path


def validate(cls: type[Any], data: Mapping[str, Any], where: str = "") -> Any:
    """A config from plain data; problems become a `UserError` with file, key and sentence of each."""
    try:
        return cls.model_validate(dict(data))
    except ValidationError as error:
        problems = list_problems(error)
    except Problems as error:
        problems = error.problems
    raise UserError("\n".join(": ".join(filter(None, (where, ".".join(path), text))) for path, text in problems))


# A shorthand key sets the key of the same name in these tables beside it, where they do not set their own.
SHORTHANDS = {"depth": ("encoder", "decoder")}


def merge(base: Mapping[str, Any], over: Mapping[str, Any], later: bool = True) -> dict[str, Any]:
    """Merge `over` into `base`, table by table; another `kind` replaces the whole table. A shorthand key of `over`
    replaces what `base` sets for it in single tables, unless both were written at once (not `later`).

    >>> merge({"norm": {"kind": "layer", "eps": 1.0}}, {"norm": {"kind": "rms"}})
    {'norm': {'kind': 'rms'}}
    >>> merge({"norm": "rms"}, {"norm": {"eps": 1.0}})
    {'norm': {'kind': 'rms', 'eps': 1.0}}
    >>> merge({"encoder": {"depth": 3, "shared": True}}, {"depth": 6})
    {'encoder': {'shared': True}, 'depth': 6}
    """
    merged = dict(base)
    for key, tables in SHORTHANDS.items() if later else ():
        for name in tables if key in over else ():
            if isinstance(table := merged.get(name), Mapping):
                merged[name] = {inner: value for inner, value in table.items() if inner != key}
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
