"""What an architecture of `transformers` is here: a schema of its `config.json`, a table of names, a few words."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from headwise.config.base import Config, Problems, validate
from headwise.errors import UserError
from headwise.interop.hf.files import Weights
from headwise.interop.hf.text import Texts
from headwise.interop.hf.unread import UNREAD
from headwise.models.config import ModelConfig
from headwise.models.layers import LayerFields
from headwise.text.tokenisers import Tokenisers

Id = int | tuple[int, ...] | None

Gating = Literal["relu", "gelu", "gelu_new", "gelu_pytorch_tanh", "gelu_fast", "silu", "swish", "sigmoid"]
Plain = Literal["relu", "gelu", "gelu_new", "gelu_pytorch_tanh", "gelu_fast", "silu", "swish", "sigmoid", "tanh"]
COMPUTED = "it is computed, and only older versions stored it"
SHOWN = 5  # names in a complaint
UNKNOWN = "nothing here knows what this key changes"
REMEDY = "remove it if it changes no outputs"
EMPTY: dict[str, Any] = {"pruned_heads": {}}  # keys that change nothing with this value
ACTIVATIONS: dict[str, tuple[Plain, ...]] = {  # of several names for one activation the first is written
    "relu": ("relu",),
    "gelu": ("gelu",),
    "gelu_tanh": ("gelu_new", "gelu_pytorch_tanh", "gelu_fast"),
    "swish": ("silu", "swish"),
    "sigmoid": ("sigmoid",),
    "tanh": ("tanh",),
}
GATES = {"relu": "reglu", "gelu": "geglu", "gelu_tanh": "geglu_tanh", "swish": "swiglu", "sigmoid": "glu"}
OURS = {theirs: ours for ours, names in ACTIVATIONS.items() for theirs in names}


def activation_of(config: LayerFields) -> str:
    """Their name, also of a gate; of one that they do not have, any: that it is another shows when it is read back."""
    plain = {gate: plain for plain, gate in GATES.items()}.get(config.activation, config.activation)
    return ACTIVATIONS.get(plain, ("relu",))[0]


class Keys(Config):
    """The keys of a `config.json`, or of a table in it, that matter, with the defaults of `transformers`.

    An alias (`attribute_map` in `transformers`) counts as the key that it stands for. Keys that change no outputs are
    left out; any other is refused, unless it is null.
    """

    aliases: ClassVar[Mapping[str, str]] = {}  # another name of a key -> the key
    unread: ClassVar[Collection[str]] = ()  # keys of this model type that change no outputs, beside `UNREAD`

    model_type: str
    # Old files have these everywhere; where they may have another value, a subclass says so.
    is_encoder_decoder: Literal[False] = False
    is_decoder: Literal[False] = False
    add_cross_attention: Literal[False] = False
    tie_encoder_decoder: Literal[False] = False

    @model_validator(mode="before")
    @classmethod
    def _resolve_keys(cls, data: Any) -> Any:
        """Aliases resolved, keys without effect left out, unknown ones refused."""
        if not isinstance(data, Mapping):
            return data
        found: dict[str, Any] = {}
        for name, value in data.items():
            key = cls.aliases.get(name, name)
            if name != key and key in data and data[key] != value:
                raise Problems([((name,), f"is {value!r}, but {key}, the same setting, is {data[key]!r}; keep one")])
            if key in cls.model_fields:
                found[key] = value
            elif key not in UNREAD and key not in cls.unread and value is not None and value != EMPTY.get(key):
                raise Problems([((str(name),), f"{value!r} is not supported, as {UNKNOWN}; {REMEDY}")])
        return found


class Schema(Keys):
    """The keys of a model's `config.json`."""

    @classmethod
    def read(cls, data: Mapping[str, Any], where: str = "config.json") -> Self:
        found: Self = validate(cls, data, where)
        return found

    def tied(self, name: str) -> Mapping[str, str]:
        """The tensors of a class of `transformers` that are tied: each with the one that it is tied to, in the order in
        which `tie_weights` goes through them."""
        return {}

    @abstractmethod
    def ours(self, task: str, names: Collection[str]) -> dict[str, Any]:
        """The settings of our config; `names` are the tensors that the folder has."""

    @classmethod
    @abstractmethod
    def of(cls, config: Any, vocab: int) -> Self:
        """What says this of a model of ours, as far as it can be said."""


class Theirs(Schema):
    """Of a model that reads texts. One that reads images is a `TheirImages` (images.py)."""

    vocab_size: int = Field(gt=0)
    pad_token_id: Id = None
    bos_token_id: Id = None
    eos_token_id: Id = None

    @property
    @abstractmethod
    def context(self) -> int:
        """How many tokens it reads at once."""


def stacked(parts: Sequence[Tensor]) -> Tensor:
    return torch.cat(tuple(parts)) if len(parts) > 1 else parts[0]


def split(tensor: Tensor, sizes: Sequence[int]) -> Sequence[Tensor]:
    return tensor.split(list(sizes)) if sizes else (tensor,)


def transposed(parts: Sequence[Tensor]) -> Tensor:
    """Conv1D of GPT holds (in, out); ours are (out, in), as nn.Linear."""
    return parts[0].t() if parts[0].dim() == 2 else parts[0]


@dataclass(frozen=True)
class Key:
    """Where a module (or a tensor) of ours is in their files.

    `read` makes our tensor of theirs; `write` theirs of ours and of the sizes along its first axis that the names are
    to have, where these are projections of one attention. A product with patches (`kernel` in images.py) has the shape
    of a patch instead.
    """

    names: tuple[str, ...]
    read: Callable[[Sequence[Tensor]], Tensor] = stacked
    write: Callable[[Tensor, Sequence[int]], Sequence[Tensor]] = split
    others: tuple[str, ...] = ()  # further names for all of it
    by_head: bool = False  # whether theirs has the queries, keys and values of each head together
    optional: bool = False  # whether a folder may be without it, which then is zero


def fused(*names: str) -> Key:
    """Several modules whose rows stand one after the other in ours."""
    return Key(names)


def turned(name: str) -> Key:
    """One of which we have the transpose."""
    return Key((name,), transposed, lambda tensor, sizes: (transposed([tensor]),))


def either(*names: str) -> Key:
    """One that has several names; the first is written."""
    return Key(names[:1], others=names[1:])


def no_check(weights: Weights) -> None:
    pass


def some(names: Iterable[str]) -> str:
    """The first few of many names.

    >>> some(f"h.{i}" for i in range(7))
    'h.0, h.1, h.2, h.3, h.4 and 2 more'
    """
    names = sorted(set(names))
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")


def no_files(tokenisers: Tokenisers, folder: Path) -> bool:
    return False


@dataclass(frozen=True)
class Architecture:
    """One `model_type`. See the package for how to add one."""

    theirs: type[Schema]
    config: type[ModelConfig]
    classes: Mapping[str, str]  # theirs -> our task
    keys: Mapping[str, str | Key]
    heads: Mapping[str, Mapping[str, str | Key]] = field(default_factory=dict)  # further keys of a task, or of a class
    hints: Mapping[str, str] = field(default_factory=dict)  # a class of theirs -> a tensor of ours that none but it has
    stem: str = ""  # of the base model's names, which a folder of a base model leaves out
    ignored: Mapping[str, str] = field(default_factory=dict)  # a pattern of tensors that are left aside -> the reason
    check: Callable[[Weights], None] = no_check  # of tensors that are left aside and must have certain values
    roles: Mapping[str, str] = field(default_factory=dict)  # our mark -> theirs, where they differ
    texts: Callable[[Path], Texts] = Texts.of
    write_texts: Callable[[Tokenisers, Path], bool] = no_files  # of a form of its own; whether there is one
    # further special tokens of theirs -> the one of ours that each is
    also: Mapping[str, str] = field(default_factory=dict)
    relatives: tuple[type[ModelConfig], ...] = ()  # other models of ours that it can hold with some settings

    @property
    def model_type(self) -> str:
        return str(self.theirs.model_fields["model_type"].default)

    def role(self, mark: str) -> str:
        return self.roles.get(mark, mark)

    def class_of(self, data: Mapping[str, Any], where: str) -> str:
        """The class that a folder was written for."""
        names = data.get("architectures") or list(self.classes)[:1]
        if names[0] not in self.classes:
            known = ", ".join(self.classes)
            raise UserError(f"{where}: architectures '{names[0]}' is not known; of {self.model_type}: {known}")
        return str(names[0])

    def class_for(self, task: str, tensors: Collection[str] = ()) -> str:
        """The class of theirs that a model of ours with these tensors is written for."""
        able = [name for name, own in self.classes.items() if own == task]
        fit = [name for name in able if self.hints.get(name, "") in ("", *tensors)]
        return (fit or able or [""])[0]

    def for_class(self, name: str) -> Architecture:
        """The same with the names of what stands on the base model in a class."""
        return replace(self, keys={**self.keys, **self.heads.get(self.classes[name], {}), **self.heads.get(name, {})})
