"""RoPE settings of a Hugging Face config: `rope_parameters`, in older files `rope_scaling`, `rope_theta` and
`partial_rotary_factor`; as `RotaryEmbeddingConfigMixin` of transformers resolves them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Self

from pydantic import Field, model_validator

from headwise.blocks.positions.base import PositionConfig
from headwise.blocks.positions.rope_scaling import RopeScalingConfig
from headwise.blocks.positions.rotary import RotaryConfig
from headwise.config.base import Problems
from headwise.interop.hf.architecture import HfTextConfig

BASE = 10_000.0

# Keys that transformers reads for each type; it ignores those of other types.
KEYS = {
    "default": (),
    "linear": ("factor",),
    "dynamic": ("factor",),
    "yarn": ("attention_factor", "beta_fast", "beta_slow", "factor", "mscale", "mscale_all_dim", "truncate"),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor"),
    "longrope": ("attention_factor", "factor", "short_factor", "long_factor"),
}
COMMON = ("rope_type", "type", "rope_theta", "partial_rotary_factor", "original_max_position_embeddings")
KNOWN = frozenset((*COMMON, *(key for keys in KEYS.values() for key in keys)))
REQUIRED = {
    "linear": ("factor",),
    "dynamic": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor"),
    "longrope": ("short_factor", "long_factor"),
}


class HfRopeConfig(HfTextConfig):
    """The `config.json` of a text model with rotary positions of whole heads, as LLaMA's: there `transformers` ignores
    a `partial_rotary_factor`, or cannot run with it. GPT-NeoX has a property `positions` of its own."""

    max_position_embeddings: int = Field(2048, gt=0)
    rope_theta: float = Field(BASE, gt=0)  # `transformers` before version 5
    partial_rotary_factor: float | None = None
    rope_scaling: dict[str, Any] | None = None
    rope_parameters: dict[str, Any] | None = None
    # Written among rope_parameters alone: here even null would take precedence over them.
    original_max_position_embeddings: int | None = Field(None, gt=0, exclude=True)

    @model_validator(mode="after")
    def _check_rope(self) -> Self:
        assert self.positions
        return self

    @property
    def context(self) -> int:
        return self.max_position_embeddings

    @property
    def positions(self) -> dict[str, Any]:
        """The settings of rotary positions. In `transformers` the older name takes precedence, as a whole table."""
        settings = read_rope(
            self.rope_scaling or self.rope_parameters or {},
            "rope_scaling" if self.rope_scaling else "rope_parameters",
            theta=self.rope_theta,
            fraction=self.partial_rotary_factor,
            length=self.max_position_embeddings,
            original=self.original_max_position_embeddings,
        )
        if settings["fraction"] != 1:
            text = f"is {settings['fraction']}, but this model type rotates whole heads in transformers; remove it"
            raise Problems([(("partial_rotary_factor",), text)])
        return settings


def read_rope(
    parameters: Mapping[str, Any], key: str, *, theta: float, fraction: float | None, length: int, original: int | None
) -> dict[str, Any]:
    """The settings of rotary positions. `key` is where `parameters` stand in the file; `theta` and `fraction` are the
    keys beside them, `length` is max_position_embeddings and `original` original_max_position_embeddings."""
    kind = parameters.get("rope_type", parameters.get("type", "default"))
    if kind not in KEYS:
        raise Problems([((key, "rope_type"), f"{kind!r} is not supported; the types are {', '.join(KEYS)}")])
    if unknown := sorted(set(parameters) - KNOWN):
        raise Problems([((key, unknown[0]), "is not supported, as nothing says what this key changes")])
    for name in REQUIRED.get(kind, ()):
        if parameters.get(name) is None:
            raise Problems([((key, name), f"is missing; rotary positions of type {kind!r} need it")])
    read = _Reader(parameters, key)
    share = read.number("partial_rotary_factor", 1.0 if fraction is None else fraction)
    settings: dict[str, Any] = {"kind": "rotary", "base": read.number("rope_theta", theta), "fraction": share}
    pretrained = original or int(read.number("original_max_position_embeddings", length))
    scaling = SCALINGS[kind](read, length, pretrained)
    return settings | ({"scaling": {"kind": kind, **scaling}} if kind != "default" else {})


class _Reader:
    """Numbers of a table, refused by key where they are something else."""

    def __init__(self, parameters: Mapping[str, Any], key: str):
        self.parameters, self.key = parameters, key

    def number(self, name: str, default: float | None = None) -> float:
        value = self.parameters.get(name)
        value = default if value is None else value
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
            path = (self.key, name) if name in self.parameters else (name,)
            raise Problems([(path, f"is {value!r}; it must be a number above 0")])
        return float(value)

    def numbers(self, name: str) -> list[float]:
        values = self.parameters[name]
        if not isinstance(values, list | tuple) or not all(isinstance(value, int | float) for value in values):
            raise Problems([((self.key, name), "must be a list of numbers")])
        return [float(value) for value in values]

    def given(self, name: str) -> bool:
        return self.parameters.get(name) is not None


def _read_yarn(read: _Reader, length: int, pretrained: int) -> dict[str, Any]:
    factor = read.number("factor", length / pretrained)
    settings = {"factor": factor, "max_length": pretrained, "truncate": bool(read.parameters.get("truncate", True))}
    settings |= {name: read.number(name) for name in ("beta_fast", "beta_slow") if read.parameters.get(name)}
    if read.given("attention_factor"):
        return settings | {"attention": read.number("attention_factor")}
    if read.parameters.get("mscale") and read.parameters.get("mscale_all_dim") and factor > 1:
        scale, scale_all = (0.1 * read.number(name) * math.log(factor) + 1 for name in ("mscale", "mscale_all_dim"))
        return settings | {"attention": scale / scale_all}
    return settings


def _read_longrope(read: _Reader, length: int, pretrained: int) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "short_factors": read.numbers("short_factor"),
        "long_factors": read.numbers("long_factor"),
        "factor": read.number("factor", length / pretrained),
        "max_length": pretrained,
    }
    return settings | ({"attention": read.number("attention_factor")} if read.given("attention_factor") else {})


SCALINGS: dict[str, Callable[[_Reader, int, int], dict[str, Any]]] = {
    "default": lambda read, length, pretrained: {},
    "linear": lambda read, length, pretrained: {"factor": read.number("factor")},
    "dynamic": lambda read, length, pretrained: {"factor": read.number("factor"), "max_length": length},
    "yarn": _read_yarn,
    "llama3": lambda read, length, pretrained: {
        "factor": read.number("factor"),
        "low_factor": read.number("low_freq_factor"),
        "high_factor": read.number("high_freq_factor"),
        "max_length": pretrained,
    },
    "longrope": _read_longrope,
}
# Our key -> theirs, where they differ.
WRITTEN = {
    "attention": "attention_factor",
    "low_factor": "low_freq_factor",
    "high_factor": "high_freq_factor",
    "short_factors": "short_factor",
    "long_factors": "long_factor",
    "max_length": "original_max_position_embeddings",
}


def write_rope(positions: PositionConfig) -> dict[str, Any]:
    """The keys of rotary positions of whole heads. What other positions say is lost, which `choose_architecture`
    notices."""
    if not isinstance(positions, RotaryConfig):
        return {}
    scaling: RopeScalingConfig = positions.scaling
    values = {WRITTEN.get(name, name): value for name, value in scaling.model_dump(mode="json").items()}
    kind = values.pop("kind")
    if not values.get("attention_factor"):
        values.pop("attention_factor", None)
    keys: dict[str, Any] = {"rope_theta": positions.base}
    if kind == "dynamic":
        keys["max_position_embeddings"] = values.pop("original_max_position_embeddings")
    kind = "default" if kind == "none" else kind
    return keys | {"rope_parameters": {"rope_type": kind, "rope_theta": positions.base, **values}}
