"""An architecture of `transformers`: a schema of its `config.json`, a map of tensor names, its special tokens."""

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
from headwise.interop.hf.files import UNQUANTISED, WEIGHTS, LazyStateDict
from headwise.interop.hf.fixed_keys import explain_value
from headwise.interop.hf.ignored_keys import IGNORED_KEYS
from headwise.interop.hf.text import TokeniserFiles
from headwise.models.config import ModelConfig
from headwise.models.layers import LayerFields
from headwise.text.tokenisers import Tokenisers

TokenId = int | tuple[int, ...] | None

HfGateActivation = Literal["relu", "gelu", "gelu_new", "gelu_pytorch_tanh", "gelu_fast", "silu", "swish", "sigmoid"]
HfActivation = Literal["relu", "gelu", "gelu_new", "gelu_pytorch_tanh", "gelu_fast", "silu", "swish", "sigmoid", "tanh"]
COMPUTED = "it is computed, and only older versions stored it"
MAX_NAMES = 5  # in an error message
UNKNOWN = "nothing here knows what this key changes"
REMEDY = "remove it if it changes no outputs"
REFUSED = {  # where more is known
    "quantization_config": f"quantised weights are not supported; {UNQUANTISED}",
    "transformers_weights": f"names another file than {WEIGHTS}; rename that file to {WEIGHTS}, and remove this key",
}
NEUTRAL_VALUES: dict[str, Any] = {  # keys that change nothing with this value
    "pruned_heads": {},
    "transformers_weights": WEIGHTS,
}
HF_ACTIVATIONS: dict[str, tuple[HfActivation, ...]] = {  # Headwise -> Hugging Face; the first name is written
    "relu": ("relu",),
    "gelu": ("gelu",),
    "gelu_tanh": ("gelu_new", "gelu_pytorch_tanh", "gelu_fast"),
    "swish": ("silu", "swish"),
    "sigmoid": ("sigmoid",),
    "tanh": ("tanh",),
}
ACTIVATIONS = {hf_name: name for name, hf_names in HF_ACTIVATIONS.items() for hf_name in hf_names}
GATES = {"relu": "reglu", "gelu": "geglu", "gelu_tanh": "geglu_tanh", "swish": "swiglu", "sigmoid": "glu"}


def name_activation(config: LayerFields) -> str:
    """The Hugging Face name of a model's activation, gated or not.

    One that Hugging Face does not have is called "relu"; `choose_architecture` then refuses the model, because reading
    the config back gives another activation.
    """
    activation = {gated: plain for plain, gated in GATES.items()}.get(config.activation, config.activation)
    return HF_ACTIVATIONS.get(activation, ("relu",))[0]


class HfConfigBase(Config):
    """The keys of a `config.json`, or of a table in it, that change outputs, with the defaults of `transformers`.

    A key that may have but some values is a `Literal`; fixed_keys.py says what can be done about another one. An alias
    (`attribute_map` in `transformers`) counts as the key that it stands for. Keys that change no outputs are ignored;
    any other is refused, unless it is null.
    """

    aliases: ClassVar[Mapping[str, str]] = {}  # alias -> key
    ignored_keys: ClassVar[Collection[str]] = ()  # of this model type, beside `IGNORED_KEYS` of all
    library: ClassVar[str] = "transformers"  # whose files these are

    model_type: str
    # Old files of every model type have these; where another value is possible, a subclass says so.
    is_encoder_decoder: Literal[False] = False
    is_decoder: Literal[False] = False
    add_cross_attention: Literal[False] = False
    tie_encoder_decoder: Literal[False] = False

    @model_validator(mode="before")
    @classmethod
    def _resolve_keys(cls, data: Any) -> Any:
        """Resolve aliases, drop ignored keys, refuse unknown ones and values that a fixed key cannot have."""
        if not isinstance(data, Mapping):
            return data
        values: dict[str, Any] = {}
        for name, value in data.items():
            key = cls.aliases.get(name, name)
            if name != key and key in data and data[key] != value:
                raise Problems([((name,), f"is {value!r}, but {key}, the same setting, is {data[key]!r}; keep one")])
            if key in cls.model_fields:
                values[key] = value
                if problem := explain_value(key, value, cls.model_fields[key].annotation, cls.library):
                    raise Problems([((str(name),), problem)])
            elif (
                key not in IGNORED_KEYS
                and key not in cls.ignored_keys
                and value is not None
                and value != NEUTRAL_VALUES.get(key)
            ):
                raise Problems(
                    [((str(name),), REFUSED.get(key, f"{value!r:.80} is not supported, as {UNKNOWN}; {REMEDY}"))]
                )
        return values


class HfConfig(HfConfigBase):
    """The `config.json` of a model, as a validated value."""

    @classmethod
    def read(cls, data: Mapping[str, Any], where: str = "config.json") -> Self:
        """Validate the contents of a `config.json`; errors begin with `where`."""
        try:
            config: Self = validate(cls, data, where)
        except UserError as error:
            raise UserError(join_problems(str(error), where)) from None
        return config

    def tied_weights(self, class_name: str) -> Mapping[str, str]:
        """Tied tensors of a class of `transformers`: target -> source, in the order of its `tie_weights`."""
        return {}

    @abstractmethod
    def to_settings(self, task: str, names: Collection[str]) -> dict[str, Any]:
        """The settings of the Headwise model config; `names` are the tensor names of the checkpoint."""

    @classmethod
    @abstractmethod
    def from_model_config(cls, config: Any, vocab: int) -> Self:
        """The Hugging Face config of a Headwise model config, without checking that it expresses all of it."""


def join_problems(text: str, where: str) -> str:
    """One sentence of the lines about a key that may have values of several types.

    >>> lines = "here: size.int: must be above 0 (it is -1)", "here: size.tuple[int, int]: must be a tuple (it is -1)"
    >>> join_problems("\\n".join(lines), "here")
    'here: size: must be above 0 (it is -1), or must be a tuple (it is -1)'
    """
    problems: dict[str, list[str]] = {}
    for line in text.split("\n"):
        path, _, problem = line.removeprefix(f"{where}: ").partition(": ")
        problems.setdefault(path.partition(".")[0], []).append(problem)
    if len(text.split("\n")) == len(problems):
        return text
    return "\n".join(f"{where}: {key}: {', or '.join(dict.fromkeys(lines))}" for key, lines in problems.items())


class HfTextConfig(HfConfig):
    """The `config.json` of a text model. That of an image model is an `HfImageConfig` (images.py)."""

    vocab_size: int = Field(gt=0)
    pad_token_id: TokenId = None
    bos_token_id: TokenId = None
    eos_token_id: TokenId = None

    @property
    @abstractmethod
    def context(self) -> int:
        """The maximum number of tokens in an input."""


def concatenate(parts: Sequence[Tensor]) -> Tensor:
    first = parts[0]
    if len(parts) == 1:
        return first
    if not first.is_meta:
        return torch.cat(tuple(parts))
    # `torch.cat` on the meta device imports torch._dynamo, which takes three seconds.
    if any(part.shape[1:] != first.shape[1:] for part in parts):
        raise RuntimeError("parts of different shapes")
    return first.new_empty((sum(len(part) for part in parts), *first.shape[1:]))


def split(tensor: Tensor, sizes: Sequence[int]) -> Sequence[Tensor]:
    return tensor.split(list(sizes)) if sizes else (tensor,)


def transpose_matrix(parts: Sequence[Tensor]) -> Tensor:
    """GPT's Conv1D has weights (in, out); nn.Linear has (out, in)."""
    return parts[0].t() if parts[0].dim() == 2 else parts[0]


@dataclass(frozen=True)
class WeightConverter:
    """The Hugging Face names of a Headwise module (or tensor), with the conversion of its tensors in both directions.

    `read` converts the Hugging Face tensors of `names` into one Headwise tensor. `write` converts a Headwise tensor
    back, given the rows of each part where it fuses the projections of an attention; for a patch embedding
    (`flatten_kernel` in images.py), the shape of a patch instead.
    """

    names: tuple[str, ...]
    read: Callable[[Sequence[Tensor]], Tensor] = concatenate
    write: Callable[[Tensor, Sequence[int]], Sequence[Tensor]] = split
    alternatives: tuple[tuple[str, ...], ...] = ()  # other names that a checkpoint may store it under instead
    by_head: bool = False  # Hugging Face's rows are grouped by head, Headwise's by query, key and value
    by_expert: bool = False  # each expert has tensors of its own: `{e}` in the names is its number
    optional: bool = False  # zeros where the checkpoint has none


def add_prefix(prefix: str, name_map: NameMap) -> NameMap:
    """A name map whose Hugging Face names have a prefix."""

    def prefix_value(value: str | WeightConverter) -> str | WeightConverter:
        if isinstance(value, str):
            return prefix + value
        names = tuple(prefix + name for name in value.names)
        others = tuple(tuple(prefix + name for name in group) for group in value.alternatives)
        return replace(value, names=names, alternatives=others)

    return {name: prefix_value(value) for name, value in name_map.items()}


NameMap = Mapping[str, str | WeightConverter]  # Headwise module or tensor -> Hugging Face name(s)


def fuse(*names: str) -> WeightConverter:
    """Hugging Face modules whose rows are concatenated in one Headwise module."""
    return WeightConverter(names)


def keep_fused(name: str) -> WeightConverter:
    """A module that fuses the same projections, in the same order, in both libraries."""
    return WeightConverter((name,), write=lambda tensor, sizes: (tensor,))


def transpose(name: str) -> WeightConverter:
    """A Hugging Face module with transposed weights."""
    return WeightConverter((name,), transpose_matrix, lambda tensor, sizes: (transpose_matrix([tensor]),))


def stack_experts(*names: str) -> WeightConverter:
    """Hugging Face tensors of each expert, with `{e}` for its number; those of one expert are concatenated, and experts
    stacked in one Headwise tensor (E, out, in)."""
    count = len(names)

    def read(parts: Sequence[Tensor]) -> Tensor:
        return torch.stack([concatenate(parts[first : first + count]) for first in range(0, len(parts), count)])

    def write(tensor: Tensor, sizes: Sequence[int]) -> Sequence[Tensor]:
        return [part.contiguous() for expert in tensor for part in expert.chunk(count)]

    return WeightConverter(names, read, write, by_expert=True)


def any_of(*names: str) -> WeightConverter:
    """A module that different checkpoints store under different names; the first is written."""
    return WeightConverter(names[:1], alternatives=tuple((name,) for name in names[1:]))


def find_nothing(weights: LazyStateDict) -> Collection[str]:
    return ()


def list_names(names: Iterable[str]) -> str:
    """The first few of many names, for an error message.

    >>> list_names(f"h.{i}" for i in range(7))
    'h.0, h.1, h.2, h.3, h.4 and 2 more'
    """
    names = sorted(set(names))
    return ", ".join(names[:MAX_NAMES]) + (f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else "")


def write_no_tokeniser_files(tokenisers: Tokenisers, folder: Path) -> bool:
    return False


@dataclass(frozen=True)
class Architecture:
    """One `model_type`. The docstring of the package explains how to add one."""

    hf_config: type[HfConfig]
    config: type[ModelConfig]
    classes: Mapping[str, str]  # class of transformers -> task
    name_map: NameMap
    head_maps: Mapping[str, NameMap] = field(default_factory=dict)  # further names, by task or class
    required_tensors: Mapping[str, str] = field(default_factory=dict)  # class -> Headwise tensor that only it can hold
    base_prefix: str = ""  # `base_model_prefix` with a dot; a checkpoint of a base model leaves it out
    stored_as: Mapping[str, str] = field(default_factory=dict)  # tensor of the class -> its name in checkpoints
    ignored: Mapping[str, str] = field(default_factory=dict)  # pattern of tensor names -> why they are ignored
    find_computed: Callable[[LazyStateDict], Collection[str]] = find_nothing  # stored tensors that are computed here
    special_names: Mapping[str, str] = field(default_factory=dict)  # pad, bos, ... -> its name in config.json
    extra_special_ids: Mapping[str, str] = field(default_factory=dict)  # further <name>_token_id -> pad, bos, ...
    read_tokeniser_files: Callable[[Path, Mapping[str, Any]], TokeniserFiles] = TokeniserFiles.read
    write_tokeniser_files: Callable[[Tokenisers, Path], bool] = write_no_tokeniser_files  # False: none written
    first_token_type: int = 0  # token type of the CLS token, where the types are not those of a table: 2 in Funnel
    zero_padding: bool = False  # transformers sets the embedding of `pad_token_id` to zero whenever it loads a folder
    needs_cache: bool = False  # outputs of decoding change without a KV cache: experts with a capacity
    relatives: tuple[type[ModelConfig], ...] = ()  # other model configs that it can express with some settings

    @property
    def model_type(self) -> str:
        return str(self.hf_config.model_fields["model_type"].default)

    def special_name(self, token: str) -> str:
        """The name that a special token (pad, bos, ...) has in `config.json`."""
        return self.special_names.get(token, token)

    def reads_pair_types(self, config: Any) -> bool:
        """Whether a model reads token types that tell the texts of a pair apart."""
        has_types = getattr(config, "token_types", 0) > 1 or self.first_token_type > 0
        return has_types and bool(getattr(config, "pair_types", False))

    def read_class_name(self, data: Mapping[str, Any], where: str) -> str:
        """The class of `transformers` that a `config.json` names."""
        names = data.get("architectures") or list(self.classes)[:1]
        if not isinstance(names, list) or not isinstance(names[0], str):
            raise UserError(f"{where}: architectures: is {names!r:.80}; it must be a list with the name of a class")
        if names[0] not in self.classes:
            known = ", ".join(self.classes)
            raise UserError(f"{where}: architectures '{names[0]}' is not known; of {self.model_type}: {known}")
        return str(names[0])

    def choose_class_name(self, task: str, tensors: Collection[str] = ()) -> str:
        """The class of `transformers` to export a model with these tensors as; empty where no class has this task."""
        candidates = [name for name, class_task in self.classes.items() if class_task == task]
        complete = [name for name in candidates if self.required_tensors.get(name, "") in ("", *tensors)]
        return (complete or candidates or [""])[0]

    def with_head(self, class_name: str) -> Architecture:
        """The same with the tensor names of a class's head."""
        task_map, class_map = self.head_maps.get(self.classes[class_name], {}), self.head_maps.get(class_name, {})
        return replace(self, name_map={**self.name_map, **task_map, **class_map})
